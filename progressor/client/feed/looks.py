"""When a reader looks at the feed: after a hint, when it was seen to go on, or else at intervals.

Rule: a hint that comes after a look has begun is never lost.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress

from progressor.node.lookout import PAUSE
from progressor.node.node import Node

# Seconds between two looks at a feed that has nothing new: short after something came, then longer. The
# lookout of the node sees what comes meanwhile, so the longest finds only that a fail-over has put another
# row at the last position.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0


class Looks:
    """The looks of a reader at the feed, and the pauses in between, which a hint ends."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._seconds = _SHORTEST_PAUSE
        node.follow_feed()
        self._rung = node.lookout.rung

    def look(self) -> None:
        """Note that a look begins: hints from here on count."""
        self._rung = self._node.lookout.rung

    def came(self) -> None:
        """Note that something came: more may follow soon."""
        self._seconds = _SHORTEST_PAUSE

    async def pause(self, end: int | None, at_most: float = _LONGEST_PAUSE) -> None:
        """Wait for a hint since the last look, or for a while, if all up to the `end` of the feed is read.

        With None it is not: then it is a short while.
        """
        seconds = min(self._seconds, at_most, _LONGEST_PAUSE if end is not None else PAUSE)
        watching = nullcontext() if end is None else self._node.lookout.watching(self, end)
        # Not `wait_for`, which may swallow a cancellation before Python 3.12 (bpo-37658).
        with suppress(TimeoutError), watching:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._seconds = min(self._seconds * 2, _LONGEST_PAUSE)
