"""Nothing in the background ends unseen."""

from __future__ import annotations

import ast
import asyncio
import logging
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

import progressor
from progressor import supervision
from progressor.loggers import message_of
from progressor.supervision import Background, in_thread, keep_thread, report, watched

PART = "a part of the tests"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(supervision, "_LONGEST_PAUSE", 0.004)
    monkeypatch.setattr(supervision, "_PROD", 0.01)


def count() -> float:
    return REGISTRY.get_sample_value("progressor_background_failures_total", {"part": PART}) or 0.0


class Failing:
    """Fails as it is told, then says that it is there and waits."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors: Iterator[BaseException] = iter(errors)
        self.there = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        for error in self._errors:
            raise error
        self.there.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True


async def test_what_fails_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    """Each failure is logged with its cause and counted, and the task goes on."""
    before, background = count(), Background(namespace="shop")
    failing = Failing(KeyError("a defect"), ValueError("another"))
    background.keep(PART, failing.run)
    async with asyncio.timeout(30):
        await failing.there.wait()
    assert count() - before == 2
    said = [
        (message_of(record), record.part, record.namespace, record.exc_info[0]) for record in caplog.records
    ]
    assert said == [("background task failed", PART, "shop", kind) for kind in (KeyError, ValueError)]
    await background.stop()
    assert failing.ended
    assert count() - before == 2


async def test_a_cancellation_that_nobody_asked_for_is_a_failure() -> None:
    """What a task awaits may have been cancelled by others: that does not end the task."""
    before, background, failing = count(), Background(), Failing(asyncio.CancelledError())
    background.keep(PART, failing.run)
    async with asyncio.timeout(30):
        await failing.there.wait()
    assert count() - before == 1
    await background.stop()


async def test_what_returns_has_ended() -> None:
    """A task that returns is not begun again."""
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1

    background = Background()
    background.keep(PART, run)
    async with asyncio.timeout(30):
        await background.ended()
    assert runs == 1


async def test_a_stop_ends_what_swallows_its_cancellation() -> None:
    """It is cancelled until it ends, and what it raises then does not begin it again."""
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
        raise ValueError("an error of the clean-up")

    before, background = count(), Background()
    background.keep(PART, stubborn)
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await background.stop()
    assert swallowed == 3
    assert count() - before == 1


async def test_what_runs_once_is_seen_too(caplog: pytest.LogCaptureFixture) -> None:
    """A task that nobody awaits and that fails is logged and counted; after the stop none begins."""
    background, failing = Background(), Failing(KeyError("a defect"))
    before = count()
    background.begin(PART, failing.run())
    await background.ended()
    assert count() - before == 1
    assert "a defect" in caplog.text
    await background.stop()
    background.begin(PART, failing.run())
    await background.ended()
    assert not failing.there.is_set()


async def test_a_task_of_another_owner() -> None:
    """`report` says of any task how it ended: an end that was asked for is none to speak of."""
    before = count()
    forever = asyncio.create_task(asyncio.Event().wait())
    forever.cancel()
    await asyncio.wait([forever])
    report(PART, forever)
    assert count() == before

    async def cancelled_within() -> None:
        raise asyncio.CancelledError

    within = asyncio.create_task(cancelled_within())
    await asyncio.wait([within])
    report(PART, within)
    assert count() - before == 1


def test_a_thread_that_fails_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    """As a task does; until the event is set."""
    until, runs = threading.Event(), 0

    def run() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise SystemExit("a handler's word")
        until.set()
        raise KeyError("the last one")

    before = count()
    keep_thread(PART, run, until=until).join(30)
    assert (runs, count() - before) == (3, 3)
    assert len(caplog.records) == 3
    assert all(record.levelno == logging.ERROR for record in caplog.records)


def test_pauses_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pause is twice the one before, up to the longest; who has worked since begins with the first."""
    now = 0.0
    monkeypatch.setattr(supervision.time, "monotonic", lambda: now)
    monkeypatch.setattr(supervision.random, "uniform", lambda _least, most: most)
    pauses = supervision.Pauses()
    assert [pauses.next() for _ in range(4)] == [0.001, 0.002, 0.004, 0.004]
    now += 1
    assert pauses.next() == 0.001


# Who may start a task or a thread himself, and why: everything else asks Background.
_OWNERS = {
    "supervision": "it is the owner",
    "worker.pool": "chains of steps, many a millisecond; each ends in `report`",
    "storage.group_commit": "flights, many a millisecond; each ends in `report`",
    "storage.postgres.pool": "the wait for a place, which what waits gives up or takes",
    "node.node": "connecting: whoever asks awaits it, and hears how it ended",
    "handlers.running.threads": "what a handler raises in its thread belongs to its caller",
    "client.sync": "what a thread asks: that waits for its end, and gets what it raised",
    "http.server.waits": "whether a caller leaves, cancelled with the wait; each ends in `report`",
    "sinks.nats": "the messages of one `send`, in a group that it waits for and whose failure it raises",
    "deployment.log_writer": "what it fails with, it cannot log; it counts the line as dropped",
    "sinks.webhook": "requests of one batch: `send` awaits them, and raises what they did",
    "cli.runner": "ends with the OS process, which it is there to end",
    "cli.many": "a page of removals: the command awaits its end, also after Ctrl-C",
}
_STARTS = {"StepTask", "create_task", "ensure_future", "Thread", "start_new_thread", "TaskGroup"}


def _calls(source: Path) -> set[str]:
    calls = (node.func for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call))
    return {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}


def test_every_task_and_thread_has_an_owner() -> None:
    """Nothing else in the package starts one."""
    root = Path(progressor.__file__).parent
    modules = {source.relative_to(root): source for source in root.rglob("*.py")}
    starting = {
        ".".join(name.with_suffix("").parts)
        for name, source in modules.items()
        if name.parts[0] != "bench" and _calls(source) & _STARTS
    }
    assert starting == set(_OWNERS)


def test_a_callback_that_fails_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    """Said and counted, and the loop goes on."""

    def fail(size: int) -> None:
        raise KeyError(size)

    before = count()
    watched(PART, fail)(7)
    assert count() - before == 1
    (record,) = caplog.records
    assert (message_of(record), vars(record)["part"]) == ("background task failed", PART)


async def test_a_thread_answers() -> None:
    """With what its work returns or raises, in the context of whoever waits."""
    asker = ContextVar("asker", default="nobody")
    asker.set("me")
    assert await in_thread(PART, asker.get) == "me"
    with pytest.raises(ZeroDivisionError):
        await in_thread(PART, lambda: 1 // 0)
    async with asyncio.timeout(30):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await in_thread(PART, lambda: next(iter(())))


# Who uses the threads of the loop, which the code of users may fill, and why.
_POOLED = {
    "archive.archive": "the loop waits for them at its end: no part that is written is cut off",
    "sinks.ndjson": "the loop waits for them at its end: no line is cut off",
}


def test_the_threads_of_the_loop_are_the_users() -> None:
    """What the engine does in a thread waits behind nothing that users do there."""
    root = Path(progressor.__file__).parent
    using = {
        ".".join(name.with_suffix("").parts)
        for source in root.rglob("*.py")
        if (name := source.relative_to(root)).parts[0] != "bench"
        and _calls(source) & {"to_thread", "run_in_executor"}
    }
    assert using == set(_POOLED)


# Callbacks that nobody watches, and why.
_UNWATCHED = {
    "self._wake": "ends a future, or listens no more",
    "_take_note": "looks at an error",
    "self._bell.set": "an event",
    "wait.over.set": "an event",
    "background.loop.stop": "ends a loop",
    "self._connection.on_room": "was made watched",
    "self.timeout_keep_alive_handler": "closes a connection",
    "self.transport.abort": "closes a connection",
    "function": "of whoever has it called",
    "partial(self._ended, part)": "supervision's own",
    "settle": "ends a future",
}
_TAKERS = {"call_soon", "call_soon_threadsafe", "call_later", "call_at", "add_done_callback", "call_in"} | {
    *("add_reader", "add_writer")
}


def test_every_callback_is_watched() -> None:
    """Nothing else in the package hands one to a loop or a future."""
    root = Path(progressor.__file__).parent
    found = set()
    for source in root.rglob("*.py"):
        if source.relative_to(root).parts[0] in ("bench", "cli"):
            continue
        tree = ast.parse(source.read_text())
        made = {
            ast.unparse(node.targets[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("watched(")
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            taker = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            if taker not in _TAKERS:
                continue
            first = 0 if taker in ("call_soon", "call_soon_threadsafe", "add_done_callback") else 1
            callback = ast.unparse(node.args[first])
            inner = callback.removeprefix("partial(").partition(",")[0]
            if not callback.startswith("watched(") and inner not in made:
                found.add(callback)
    assert found == set(_UNWATCHED)
