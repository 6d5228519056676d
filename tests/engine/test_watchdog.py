"""Who blocks the event loop is named while it does, and once more when it is over."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from progressor import Engine, Namespace, Process, metrics as published
from progressor.loggers import message_of
from progressor.node import watchdog
from progressor.node.loop_lag import LoopLag
from tests.support import NS, eventually


class Lines(logging.Handler):
    """The lines of the watchdog, and a signal at the first of what blocks here.

    `records` are of code in this file: on a machine that stood still, other code seems to have blocked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.all: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self.logged = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        facts = {"message": message_of(record), **vars(record)}
        self.all.append(facts)
        if __file__ in f"{facts.get('at')} {facts.get('stack')}":
            self.records.append(facts)
            self.logged.set()

    def block(self) -> None:
        """Block the loop until that is logged."""
        assert self.logged.wait(30), "it is logged while it blocks"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    monkeypatch.setattr(watchdog, "LONGEST", 0.1)
    lines = Lines()
    log = logging.getLogger("progressor.watchdog")
    log.addHandler(lines)
    yield lines
    log.removeHandler(lines)


@pytest.mark.parametrize("fuse", ["never", "always"])
async def test_a_handler_that_blocks_is_named(dsn: str, lines: Lines, fuse: str) -> None:
    """With its process and the line of its code: while it blocks, and once more at its end."""
    ns = Namespace(NS)

    @ns.init
    async def start(process: Process[Any]) -> None:
        pass

    @ns.call
    async def pay(process: Process[Any]) -> None:
        if fuse == "never":
            await asyncio.sleep(0)
        secret = "card-4111"  # noqa: F841 - the value of a variable
        lines.block()

    async with Engine(dsn, [ns], fuse=fuse) as engine:
        blocks = published.LOOP_BLOCKS.labels(NS)._value
        before = blocks.get()
        await engine.client.start(NS, "p1")
        await engine.client.call(NS, "p1", "pay")
        task_id = (await engine.client.trace(NS, "p1"))[-1].task_id
        await eventually(lambda: len(lines.records) == 2, "its end is logged")
        assert blocks.get() >= before + 1
    blocks_now, blocked = lines.records
    assert blocks_now["message"] == "handler blocks the event loop"
    assert blocked["message"] == "handler blocked the event loop"
    for line in lines.records:
        facts = (line["namespace"], line["process_id"], line["task_type"], line["handler"])
        assert facts == (NS, "p1", "call", "pay")
        assert line["task_id"] == task_id
        assert __file__ in line["at"]
        assert "pay" in line["at"]
        assert "card-4111" not in str(line)
    assert blocked["seconds"] >= blocks_now["seconds"] >= 0.1


async def test_other_code_that_blocks_is_named_by_its_place(lines: Lines) -> None:
    """What is no step has no process: the line of its code is what is known of it."""
    lag = LoopLag()
    lag.start()
    await asyncio.sleep(0)
    lines.block()
    await eventually(lambda: len(lines.records) == 2, "its end is logged")
    await lag.stop()
    assert [line["message"] for line in lines.records] == [
        "event loop is blocked",
        "event loop was blocked",
    ]
    assert "in Lines.block" in str(lines.records[0]["stack"])


async def test_a_loop_that_waits_is_blocked_by_nobody(lines: Lines) -> None:
    """However late it is: an OS process that has no CPU names no innocent code."""
    loop, looks, seen = asyncio.get_running_loop(), itertools.count(1), asyncio.Event()

    def late() -> tuple[float, float]:
        # The second look comes when the first is done.
        if next(looks) == 2:
            loop.call_soon_threadsafe(seen.set)
        return 1.0, 60.0

    watching = watchdog.Watchdog(lambda _: None, late)
    watching.start()
    async with asyncio.timeout(30):
        await seen.wait()
    watching.stop()
    assert lines.all == []
