"""When the timers that were set here fall due, so that nobody has to tell their worker.

Rule: each millisecond once and none beyond the horizon, so it is bounded, however many timers are set.
"""

from __future__ import annotations

import heapq
import math

# Timers that fall due later than this are left to the scanner, in seconds.
HORIZON = 60.0


class Alarm:
    """Moments to come, by the event loop's clock, the next one first."""

    def __init__(self) -> None:
        # In milliseconds.
        self._moments: list[int] = []
        self._set: set[int] = set()

    def set(self, now: float, delay: float) -> bool:
        """Go off in `delay` seconds; True if that is before all others."""
        if delay > HORIZON:
            return False
        moment = math.ceil((now + max(0.0, delay)) * 1000)
        if moment in self._set:
            return False
        self._set.add(moment)
        heapq.heappush(self._moments, moment)
        return self._moments[0] == moment

    def next(self, otherwise: float) -> float:
        """When it goes off next, or `otherwise` if that is sooner."""
        return min(self._moments[0] / 1000, otherwise) if self._moments else otherwise

    def goes_off(self, now: float) -> bool:
        """Whether a moment has come; it is over then."""
        before = len(self._moments)
        while self._moments and self._moments[0] <= now * 1000:
            self._set.discard(heapq.heappop(self._moments))
        return len(self._moments) < before
