"""A plain `for` over the changes of a process, in a thread without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from progressor import (
    Engine,
    InvalidRequest,
    Namespace,
    Process,
    ProcessNotFound,
    StorageUnavailable,
    SyncClient,
)

till = Namespace("till", state=int, feed=True)


@till.init
async def begin(process: Process[int]) -> None:
    """Begin at nothing."""
    process.state = 0


@till.call
async def add(process: Process[int]) -> int:
    """Add one, with an event."""
    process.state = (process.state or 0) + 1
    process.emit("added", total=process.state)
    return process.state


@pytest.fixture
async def engine(dsn: str) -> AsyncIterator[Engine]:
    """An engine with a process."""
    async with Engine(dsn, [till]) as engine:
        await engine.client.start("till", "t")
        yield engine


def watched(dsn: str) -> list[tuple[str, list[int], object]]:
    found = []
    with SyncClient(dsn) as client:
        handle = client.process(till, "t")
        for change in handle.watch(state=True):
            found.append((change.status, [event.event_id for event in change.events], change.state))
            if change.last_event_id < 2:
                handle.call("add")
            elif change.status != "removed":
                handle.remove()
        with pytest.raises(ProcessNotFound):
            next(client.watch("till", "t"))
        with pytest.raises(InvalidRequest):
            client.watch("till", "t", after="now")
    return found


async def test_in_a_for(engine: Engine, dsn: str) -> None:
    """The changes of Client; the loop ends with the process."""
    assert await asyncio.to_thread(watched, dsn) == [
        ("running", [], 0),
        ("running", [1], 1),
        ("running", [2], 2),
        ("removed", [], None),
    ]


def left(dsn: str) -> None:
    with SyncClient(dsn) as client:
        for _ in range(3):
            for change in client.watch("till", "t"):
                assert change.status == "running"
                break
        changes = client.watch("till", "t")
        next(changes)
        timer = threading.Timer(0.2, client.close)
        timer.start()
        with pytest.raises(StorageUnavailable):
            next(changes)
        timer.join()


async def test_loops_that_end_early(engine: Engine, dsn: str) -> None:
    """By their caller, or by another thread that closes the client."""
    await asyncio.to_thread(left, dsn)
