"""The watches of one OS process: who waits for a change is woken, also by the end."""

from __future__ import annotations

from typing import Any

from progressor.model import Life
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
