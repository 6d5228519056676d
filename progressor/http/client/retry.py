"""The retries of a client of the API: how long it tries, and how it waits between two tries."""

from __future__ import annotations

import asyncio
import secrets

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LONGEST_WAIT = 30


class RetryBudget:
    """The seconds that are left for the tries of one request."""

    def __init__(self, seconds: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + seconds
        self._pause = _FIRST_PAUSE

    @property
    def left(self) -> float:
        return max(0.0, self._until - self._clock())

    @property
    def is_over(self) -> bool:
        return self.left == 0.0

    @property
    def wait(self) -> int:
        """Return how many whole seconds the server may wait for an answer: 1 to 30."""
        return min(_LONGEST_WAIT, max(1, int(self.left)))

    async def pause(self) -> bool:
        """Sleep before the next try, for at least half a pause; return False if too little time is left."""
        if self.left < self._pause:
            return False
        await asyncio.sleep(self._pause * (0.5 + secrets.randbelow(500) / 1000))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        return True
