"""Waits for answers: a caller who leaves ends its wait; nobody looks for that while the wait is short."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from progressor.http.server import waits as waiting
from progressor.http.server.waits import DrainableWaits


class Peer:
    """A peer that leaves once it is told to, and knows whether it was asked."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.leaves = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        self.asked.set()
        await self.leaves.wait()
        return {"type": "http.disconnect"}


async def wait(waits: DrainableWaits, peer: Peer) -> None:
    async with waits.waiting(peer.receive):
        await asyncio.Event().wait()


async def test_a_caller_who_leaves_ends_its_own_wait() -> None:
    """Its wait raises TimeoutError and is counted no more, whenever it began; others go on."""
    waits, early, late = DrainableWaits(), Peer(), Peer()
    first = asyncio.ensure_future(wait(waits, early))
    await early.asked.wait()
    second = asyncio.ensure_future(wait(waits, late))
    await late.asked.wait()
    for peer, its, left in ((late, second, 1), (early, first, 0)):
        peer.leaves.set()
        with pytest.raises(TimeoutError):
            await its
        assert waits.count == left


async def test_a_short_wait_makes_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that is over soon does not ask whether its caller leaves, nor makes a task for that."""
    monkeypatch.setattr(waiting, "_SOON", 3600.0)
    waits, peer = DrainableWaits(), Peer()
    before = asyncio.all_tasks()
    async with waits.waiting(peer.receive):
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
    assert not peer.asked.is_set()


async def test_a_wait_that_begins_while_the_server_stops_ends_with_its_drain() -> None:
    """A wait that begins after the drain is over raises TimeoutError at once."""
    waits, peer = DrainableWaits(), Peer()
    await waits.drain(0)
    with pytest.raises(TimeoutError):
        await wait(waits, peer)
