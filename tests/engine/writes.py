"""Writes of a zombie collector's own that got through, or were held up, by a clock that the test moves."""

from __future__ import annotations

from progressor.node.witness import Witness
from progressor.storage.values import Beat
from tests.engine.clock import PAST
from tests.support import COLLECTOR, SECOND, Tables

AGE = 30 * SECOND


class Writes:
    """The collector's own heartbeat: time and clock go on together, as the test says, from PAST."""

    def __init__(self, tables: Tables) -> None:
        self.witness = Witness(COLLECTOR, lease_age=AGE)
        self._tables = tables
        self._seconds = self._number = 0

    def get_through(self, seconds: int) -> None:
        """One write every ten seconds."""
        for _ in range(seconds // 10):
            self.held_up(10)

    def held_up(self, seconds: int) -> None:
        """The next write gets through only then."""
        self._seconds += seconds
        self._number += 1
        at = PAST + self._seconds * SECOND
        self._tables.set_collector()
        self.witness.saw(Beat(self._number, at, self._seconds, self._seconds))
