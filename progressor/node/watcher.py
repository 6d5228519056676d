"""The watcher: it finds out which of the processes that are watched in this OS process have changed.

Rule: one statement looks at all whose look is due, however many they are. It only says that there is
something new: a watch reads that once its consumer asks for it, so nothing is held for a slow one.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from progressor.errors import InvalidRequest, ProgressorError
from progressor.model import Life
from progressor.storage import WatchReads
from progressor.supervision import Background

_MOST = 10_000
# Seconds between two looks at a process: short after a change, then longer.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
# Looks may take this part of the time; one that waits for PostgreSQL takes more, and no pause is that long.
_SHARE = 0.3


class Watch:
    """One watch of a life, whose consumer knows this version of its row.

    `rung` is set once there is another version. Hints of the feed wake one that `has_feed`.
    """

    __slots__ = ("due", "has_feed", "life", "pause", "rung", "version")

    def __init__(self, life: Life, version: int, *, has_feed: bool) -> None:
        self.life = life
        self.version = version
        self.has_feed = has_feed
        self.rung = asyncio.Event()
        self.rung.set()
        self.due = 0.0
        self.pause = _SHORTEST_PAUSE

    def put_off(self, now: float) -> None:
        """Set when to look next: a little later each time."""
        # Looks of one moment are one statement.
        self.due = math.ceil((now + self.pause) / _SHORTEST_PAUSE) * _SHORTEST_PAUSE
        self.pause = min(self.pause * 2, _LONGEST_PAUSE)


class Watcher:
    """The watches of one OS process. It looks for nobody before there is a watch."""

    def __init__(self, reads: WatchReads) -> None:
        self.reads = reads
        self._watches: set[Watch] = set()
        self._something = asyncio.Event()
        self._feed_rang = False
        self.rings = 0
        """How many hints of the feed have come."""
        self._background = Background()
        self._is_begun = self._is_stopped = False

    def add(self, life: Life, version: int, *, has_feed: bool) -> Watch:
        """Return a watch of this life; raise InvalidRequest if there are too many."""
        if len(self._watches) >= _MOST:
            raise InvalidRequest(
                f"this client watches {_MOST:,} processes, which is as many as it can", field="process_id"
            )
        if not self._is_begun:
            self._is_begun = True
            self._background.keep("watcher", self._run)
        watch = Watch(life, version, has_feed=has_feed)
        self._watches.add(watch)
        return watch

    def rest(self, watch: Watch, version: int, *, rings: int) -> None:
        """Note that the consumer of a watch knows this version, and wants to know of another one.

        `rings` is how many hints had come before it read that. It stays rung if nobody looks any more.
        """
        if self._is_stopped:
            return
        if watch.version != version:
            # Where hints come, looks between them are only for one that is lost.
            is_hinted = watch.has_feed and self.rings > 0
            watch.version, watch.pause = version, _LONGEST_PAUSE if is_hinted else _SHORTEST_PAUSE
        watch.rung.clear()
        watch.put_off(asyncio.get_running_loop().time())
        if watch.has_feed and rings != self.rings:
            watch.due = 0.0
        self._something.set()

    def leave(self, watch: Watch) -> None:
        """Forget a watch."""
        self._watches.discard(watch)

    def ring(self) -> None:
        """Look at the processes whose namespaces have a feed: it goes on."""
        self.rings += 1
        if self._watches:
            self._feed_rang = True
            self._something.set()

    async def stop(self) -> None:
        """Look no more, and wake all consumers."""
        self._is_stopped = True
        await self._background.stop()
        for watch in self._watches:
            watch.rung.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._something.clear()
            began = loop.time()
            due = self._due(began)
            if due:
                await self._look(due)
            pause = min((loop.time() - began) / _SHARE, _LONGEST_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_due()):
                    await self._something.wait()
            # What has come meanwhile is looked for together.
            await asyncio.sleep(max(0.0, began + pause - loop.time()))

    def _due(self, now: float) -> list[Watch]:
        rang, self._feed_rang = self._feed_rang, False
        return [
            watch
            for watch in self._watches
            if not watch.rung.is_set() and (watch.due <= now or (rang and watch.has_feed))
        ]

    def _next_due(self) -> float | None:
        return min((watch.due for watch in self._watches if not watch.rung.is_set()), default=None)

    async def _look(self, due: list[Watch]) -> None:
        lives, versions = [watch.life for watch in due], [watch.version for watch in due]
        try:
            changed = await self.reads.look_watched(lives, versions)
        except ProgressorError:
            # Each consumer's own read raises it, unless PostgreSQL is back by then.
            changed = list(range(len(due)))
        now = asyncio.get_running_loop().time()
        for watch in due:
            watch.put_off(now)
        for place in changed:
            due[place].rung.set()
