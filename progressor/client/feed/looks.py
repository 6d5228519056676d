"""When a reader looks at the feed: after a hint, or else at intervals.

Rule: a hint that comes after a look has begun is never lost.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from progressor.node.node import Node

# Seconds between two looks at a feed that has nothing new: short after something came, then longer.
_SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.1


class Looks:
    """The looks of a reader at the feed, and the pauses in between, which a hint ends."""

    def __init__(self, node: Node, *, longest: float = LONGEST_PAUSE) -> None:
        self._node = node
        self._longest = longest
        self._seconds = _SHORTEST_PAUSE
        node.follow_feed()
        self._rung = node.feed_rung

    def look(self) -> None:
        """Note that a look begins: hints from here on count."""
        self._rung = self._node.feed_rung

    def came(self) -> None:
        """Note that something came: more may follow soon."""
        self._seconds = _SHORTEST_PAUSE

    async def pause(self, at_most: float | None = None) -> None:
        """Wait for a hint since the last look, or for a while."""
        # Not `wait_for`, which may swallow a cancellation before Python 3.12 (bpo-37658).
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds if at_most is None else min(self._seconds, at_most)):
                await self._rung.wait()
        self._seconds = min(self._seconds * 2, self._longest)
