"""The lines that handlers write name their steps, whichever way they are written."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import shlex
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import structlog

from progressor import Engine, HandlerFailed, Namespace, Process, log_fields, tracing
from progressor.deployment import logs

NS = "logged.order"
LINES = 50
MOMENT = timedelta(milliseconds=1)

log = logging.getLogger("shop.orders")
events = structlog.get_logger()


def trace_id(number: int) -> str:
    return f"{number + 1:032x}"


@pytest.fixture(params=["json", "console"])
def stream(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """Where the lines go, in either form."""
    written = io.StringIO()
    logs.set_up(stream=written, form=request.param)
    yield written
    structlog.reset_defaults()


def facts(line: str) -> dict[str, str]:
    """The fields of a line, as texts."""
    if line.startswith("{"):
        return {name: str(value) for name, value in json.loads(line).items()}
    words = shlex.split(line)
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    return fields | {"message": " ".join(word for word in words[2:] if "=" not in word)}


def written(stream: io.StringIO, message: str) -> list[dict[str, str]]:
    found = [facts(line) for line in stream.getvalue().splitlines() if message in line]
    assert all(each["message"] == message for each in found)
    return found


def orders() -> Namespace[Any]:
    """Its handlers log twice each, before and behind a wait."""
    namespace: Namespace[Any] = Namespace(NS, concurrency=2 * LINES)
    barrier = asyncio.Event()

    @namespace.init
    async def begin(process: Process[Any]) -> None: ...

    @namespace.call
    async def pay(process: Process[Any]) -> None:
        log.info("paid", extra={"label": process.process_id})
        await asyncio.gather(later(process.process_id), asyncio.to_thread(beside, process.process_id))
        events.info("paid", label=process.process_id)

    async def later(label: str) -> None:
        await asyncio.sleep(0.001)
        log.info("paid", extra={"label": label})

    def beside(label: str) -> None:
        events.info("paid", label=label)

    @namespace.call
    def block(process: Process[Any]) -> None:
        log.info("paid", extra={"label": process.process_id})
        asyncio.run(later(process.process_id))
        events.info("%s", "paid", label=process.process_id)

    @namespace.call
    async def fail(process: Process[Any]) -> None:
        process.set_timer(after=MOMENT)
        raise ValueError("a bug")

    @namespace.call
    async def arm(process: Process[Any]) -> None:
        process.set_timer("dunning", after=MOMENT)

    @namespace.timeout("dunning")
    async def dun(process: Process[Any]) -> None:
        log.info("dunned", extra={"task_id": 7})
        log.info("dunned")
        barrier.set()

    @namespace.call
    async def wait(process: Process[Any]) -> None:
        await barrier.wait()

    return namespace


@pytest.mark.parametrize("name", ["pay", "block"])
async def test_fifty_at_once_are_not_mixed_up(dsn: str, stream: io.StringIO, name: str) -> None:
    """Of async handlers, of tasks and threads that these make, and of sync ones; each in its trace."""
    async with Engine(dsn, [orders()]) as engine:
        await asyncio.gather(*(engine.client.start(NS, str(number)) for number in range(LINES)))

        async def call(number: int) -> None:
            with tracing(f"00-{trace_id(number)}-00f067aa0ba902b7-01" if number % 5 else None):
                await engine.client.call(NS, str(number), name)

        await asyncio.gather(*map(call, range(LINES)))
        tasks = {
            str(number): str((await engine.client.trace(NS, str(number)))[-1].task_id)
            for number in range(LINES)
        }
    lines = written(stream, "paid")
    assert len(lines) == LINES * (4 if name == "pay" else 3)
    for line in lines:
        number = int(line["label"])
        assert (line["namespace"], line["process_id"], line["call"]) == (NS, line["label"], name)
        assert line["task_id"] == tasks[line["label"]]
        assert line.get("trace_id") == (trace_id(number) if number % 5 else None)


async def test_our_own_lines_of_a_step_have_the_same_fields(dsn: str, stream: io.StringIO) -> None:
    """With what they have of their own."""
    async with Engine(dsn, [orders()]) as engine:
        await engine.client.start(NS, "p")
        with tracing(f"00-{trace_id(0)}-00f067aa0ba902b7-01"), pytest.raises(HandlerFailed):
            await engine.client.call(NS, "p", "fail")
    (line,) = (facts(each) for each in stream.getvalue().splitlines() if "handler failed" in each)
    expected = {"namespace": NS, "process_id": "p", "call": "fail", "task_type": "call"}
    assert line.items() >= (expected | {"trace_id": trace_id(0)}).items()


async def test_a_line_of_another_task_keeps_to_it(dsn: str, stream: io.StringIO) -> None:
    """What a line says itself goes first. A timer's step is named as its handler is."""
    async with Engine(dsn, [orders()]) as engine:
        await engine.client.start(NS, "p")
        await engine.client.call(NS, "p", "arm")
        await engine.client.start(NS, "q")
        await engine.client.call(NS, "q", "wait")
    others, own = written(stream, "dunned")
    assert own["call"] == "timeout dunning"
    assert others["task_id"] == "7"
    assert "process_id" not in others
    assert (own["namespace"], own["process_id"]) == (NS, "p")


def test_what_an_app_has_set_up_of_structlog_stays(stream: io.StringIO) -> None:
    """A second set-up of the logs changes only what the first one has set up."""
    logs.set_up(stream=stream, form="json", child=3)
    events.warning("mine", exc_info=ValueError("why"), password="postgresql://u:secret@h/d")
    line = json.loads(stream.getvalue().splitlines()[-1])
    assert (line["message"], line["level"], line["logger"], line["child"]) == (
        "mine",
        "warning",
        __name__,
        3,
    )
    assert "ValueError: why" in line["exception"]
    assert "secret" not in stream.getvalue()
    theirs = structlog.testing.CapturingLoggerFactory()
    structlog.configure(logger_factory=theirs, processors=[structlog.processors.KeyValueRenderer()])
    logs.set_up(stream=stream)
    structlog.get_logger().info("theirs")
    assert [call.args for call in theirs.logger.calls] == [("event='theirs'",)]


def test_outside_of_steps_there_are_none(stream: io.StringIO) -> None:
    """A line has its own fields alone."""
    assert log_fields() == {}
    log.info("outside")
    assert "task_id" not in stream.getvalue()
