"""The watches of one OS process: who waits for a change is woken, also by the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from progressor.model import Life
from progressor.node import watcher as watchers
from progressor.node.watcher import Watcher


class Unread:
    """A database in which nothing changes."""

    async def look_watched(self, *_: Any) -> list[int]:
        return []


async def test_the_end_wakes_who_was_reading_then() -> None:
    """The consumer that comes back from its read after the end does not wait for another look."""
    reads: Any = Unread()
    watcher = Watcher(reads)
    life: Any = Life
    watch = watcher.add(life, 1, has_feed=False)
    late = watcher.add(life, 1, has_feed=False)
    watcher.rest(watch, 1, rings=0)
    assert not watch.rung.is_set()
    await watcher.stop()
    for each in (watch, late):
        watcher.rest(each, 2, rings=0)
        assert each.rung.is_set()


async def test_a_look_that_waited_for_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage the next hint is heard: nobody waits for some of the time that the outage took."""
    loop = asyncio.get_running_loop()
    real, late = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + late)
    monkeypatch.setattr(watchers, "_LONGEST_PAUSE", 0.1)

    class Away:
        """A database that is away for half a minute at each look, and then has something new."""

        async def look_watched(self, lives: list[Life], _versions: list[int]) -> list[int]:
            nonlocal late
            late += 30
            return [*range(len(lives))]

    reads: Any = Away()
    life: Any = Life
    watcher = Watcher(reads)
    watch = watcher.add(life, 1, has_feed=True)
    for version in (1, 2):
        watcher.rest(watch, version, rings=watcher.rings)
        watcher.ring()
        async with asyncio.timeout(40):
            await watch.rung.wait()
    await watcher.stop()
