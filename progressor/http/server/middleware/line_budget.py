"""The budget of log lines: how many of each second's lines are written, so that no load fills a disk.

Rule: a line that is left out is counted, and the next line that is written states how many there were.
"""

from __future__ import annotations

import math


class LineBudget:
    """The lines that may be written in one second, and how many are left of them."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._second = -math.inf
        self._written = 0

    def take(self, now: float) -> bool:
        """Return whether a line may be written at this time, in seconds of a clock that never goes back."""
        second = math.floor(now)
        if second != self._second:
            self._second, self._written = second, 0
        if self._written >= self._per_second:
            return False
        self._written += 1
        return True
