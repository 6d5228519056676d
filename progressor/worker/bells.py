"""The bells of a pool: what has its claims look for work.

Rule: a ring says that there may be work of a kind: a hint, a timer of our own that fell due, a freed slot
while more is known to wait, and, as the last net, a slow poll. Nothing is lost if one is heard twice. An
alarm that is heard before its timer is due is lost: so alarms go by the clock of the system. That of uvloop
has whole milliseconds, and would be heard up to one too early.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta

from progressor.storage import Kind
from progressor.worker.alarm import Alarm


class Bells:
    """The bells of one pool; `rung` are the kinds of work that may wait."""

    def __init__(self, poll_interval: timedelta) -> None:
        self.rung: set[Kind] = set()
        self._poll_interval = poll_interval.total_seconds()
        self._next_poll = 0.0
        self._bell = asyncio.Event()
        self._alarm = Alarm()

    def ring(self, kind: Kind) -> None:
        """Have the claims look for work of this kind, or go on where they were."""
        self.rung.add(kind)
        self._bell.set()

    def expect(self, delay: timedelta | None) -> None:
        """Have the claims look for timers after `delay`, when one of this pool falls due, if one does."""
        if delay is not None and self._alarm.set(time.monotonic(), delay.total_seconds()):
            self._bell.set()

    def rest(self, kind: Kind, delay: timedelta) -> None:
        """Have nothing claimed before `delay`, then tasks of this kind: a rate lets none begin before."""
        self.rung.add(kind)
        self._alarm.rest(time.monotonic(), delay.total_seconds())

    @property
    def rests(self) -> bool:
        """Return whether a rate lets nothing begin now."""
        return self._alarm.rests(time.monotonic())

    @property
    def is_heard(self) -> bool:
        """Return whether all rings so far have been heard."""
        return not self._bell.is_set()

    def rouse(self) -> None:
        """Have the claims look whether they may go on."""
        self._bell.set()

    async def next(self) -> bool:
        """Wait for the next ring; return True if it is the poll's, which rings for all kinds."""
        now = time.monotonic()
        if not self._next_poll:
            self._next_poll = now + self._jittered_poll()
        until = self._alarm.end_of_rest(now, self._next_poll) if self.rung else self._next_poll
        delay = self._alarm.next(until) - now
        if delay > 0 and not self._bell.is_set():
            handle = asyncio.get_running_loop().call_later(delay, self._bell.set)
            await self._bell.wait()
            handle.cancel()
        self._bell.clear()
        now = time.monotonic()
        if self._alarm.goes_off(now):
            self.rung.add("timers")
        if now < self._next_poll:
            return False
        self._next_poll = now + self._jittered_poll()
        self.rung |= {"calls", "timers"}
        return True

    def _jittered_poll(self) -> float:
        return self._poll_interval * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
