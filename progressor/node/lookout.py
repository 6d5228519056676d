"""The lookout: it sees that the feed goes on, for all readers of this OS process that wait for that.

Rule: one look serves all readers, however many they are, and finds what nobody has hinted. It gives what is
committed its positions, and wakes readers only if the feed does not end where one of them has read to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from progressor.errors import ProgressorError
from progressor.storage import Storage
from progressor.supervision import Background

PAUSE = 0.1
"""Seconds between two looks."""


class Lookout:
    """The look of one OS process at the end of the feed. It looks for nobody before a reader waits."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.rung = asyncio.Event()
        """Set when the feed goes on, and then another one stands here."""
        # Of each reader that waits: the last position that it has read.
        self._ends: dict[object, int] = {}
        self._something = asyncio.Event()
        self._background = Background()
        self._is_begun = False

    def ring(self) -> None:
        """Wake all readers."""
        rung, self.rung = self.rung, asyncio.Event()
        rung.set()

    @contextmanager
    def watching(self, reader: object, end: int) -> Iterator[None]:
        """Ring, while this reader waits within, when the feed does not end at that position any more."""
        if not self._is_begun:
            self._is_begun = True
            self._background.keep("lookout", self._run)
        self._ends[reader] = end
        self._something.set()
        try:
            yield
        finally:
            del self._ends[reader]

    async def stop(self) -> None:
        """Look no more, and wake all readers."""
        await self._background.stop()
        self.ring()

    async def _run(self) -> None:
        while True:
            await self._something.wait()
            await asyncio.sleep(PAUSE)
            if not self._ends:
                self._something.clear()
                continue
            # Readers that wait look by themselves too, and raise what they meet.
            with suppress(ProgressorError):
                head = await self._storage.feed_head()
                if any(end != head.position for end in self._ends.values()):
                    self.ring()
