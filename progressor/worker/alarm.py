"""The times at which timers of a pool fall due, and its rests end, so that no other process has to wake it.

Rule: each millisecond is kept once and none beyond the horizon, so memory is bounded, however many timers
are set.
"""

from __future__ import annotations

import heapq
import math

# Seconds; timers that fall due later are left to the scanner.
HORIZON = 60.0


class Alarm:
    """The moments to come, by the clock of its bells, soonest first."""

    def __init__(self) -> None:
        # Milliseconds.
        self._moments: list[int] = []
        self._set: set[int] = set()
        self._rests_until = 0.0

    def set(self, now: float, delay: float) -> bool:
        """Add the moment in `delay` seconds; return True if it is new and the soonest."""
        if delay > HORIZON:
            return False
        moment = math.ceil((now + max(0.0, delay)) * 1000)
        if moment in self._set:
            return False
        self._set.add(moment)
        heapq.heappush(self._moments, moment)
        return self._moments[0] == moment

    def rest(self, now: float, delay: float) -> None:
        """Note that a rate lets nothing begin for `delay` seconds."""
        self._rests_until = now + delay

    def rests(self, now: float) -> bool:
        """Return whether a rate lets nothing begin now."""
        return now < self._rests_until

    def end_of_rest(self, now: float, otherwise: float) -> float:
        """Return the end of a rest that is not over, or `otherwise` if there is none or that is sooner."""
        return min(self._rests_until, otherwise) if self.rests(now) else otherwise

    def next(self, otherwise: float) -> float:
        """Return the soonest moment in seconds, or `otherwise` if that is sooner."""
        return min(self._moments[0] / 1000, otherwise) if self._moments else otherwise

    def goes_off(self, now: float) -> bool:
        """Drop the moments that have come; return whether there was one."""
        before = len(self._moments)
        while self._moments and self._moments[0] <= now * 1000:
            self._set.discard(heapq.heappop(self._moments))
        return len(self._moments) < before
