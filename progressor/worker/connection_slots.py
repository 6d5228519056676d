"""Slots for steps whose handlers run SQL of their own: each has a connection for as long as it runs.

Rule: a step that waits for a connection lends its namespace's slot to other steps, and waits for a short
time only, because its task runs meanwhile and must not become a zombie. So many may wait in this way that
memory is bounded; more wait in the slots of their namespace, and so delay the claims. Functions that hold
their connections for long leave some of the slots to the others, which would else wait until they end.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from progressor import metrics
from progressor.config import EngineOptions
from progressor.handlers.function import Function
from progressor.model import WantedConnection
from progressor.node.node import Node
from progressor.storage import StepTransaction
from progressor.worker.result_budget import NoRoom

if TYPE_CHECKING:
    from progressor.worker.pool import Pool

# Seconds; a step that found no connection for so long is handed back.
_PATIENCE = 5.0
# Steps of a namespace that wait for a connection outside of its slots.
MOST_WAITING = 1_000
# A slow function holds its slots so many times as long as the briefest one, and for so many seconds.
_SLOW_FACTOR, _SLOW_FLOOR = 10, 0.1
# The last steps of a function that tell how long it holds them: in their median, so that an odd one counts
# for nothing.
_LAST = 3


class NoConnection(NoRoom):
    """Raised in a step that found no free connection, and did not begin."""


class WaitingStep(NamedTuple):
    """The ticket of a waiting step, smaller than those of later ones, and the steps of its namespace."""

    ticket: int
    owner: StepConnections


class HeldSlot:
    """A slot that a step has, and the moment since when."""

    __slots__ = ("line", "since")

    def __init__(self, line: FunctionLine, since: float) -> None:
        self.line = line
        self.since = since


class FunctionLine:
    """The steps of one function: those that hold a slot, and those that wait, by what each awaits.

    What is awaited resolves to the slot, or to None if it got none.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        # In the order in which they began.
        self.held: dict[HeldSlot, None] = {}
        self.waiting: dict[asyncio.Future[HeldSlot | None], WaitingStep] = {}
        self._now = now
        self._last: deque[float] = deque(maxlen=_LAST)
        self.typical = inf
        """The seconds for which its last steps held their slots, in the median."""

    def is_slow(self, limit: float) -> bool:
        """Return whether most of its last steps, or two that run, held their slots for so many seconds."""
        if limit <= self.typical < inf:
            return True
        long_ago = self._now() - limit
        return sum(each.since <= long_ago for each in islice(self.held, _LAST)) > _LAST // 2

    @property
    def first_ticket(self) -> int:
        """The ticket of the step that waits longest."""
        return next(iter(self.waiting.values())).ticket

    def begin(self) -> HeldSlot:
        """Give a slot to a step."""
        slot = HeldSlot(self, self._now())
        self.held[slot] = None
        return slot

    def end(self, slot: HeldSlot) -> None:
        """Take the slot of a step that has ended, and note for how long it had it."""
        del self.held[slot]
        self._last.append(self._now() - slot.since)
        self.typical = sorted(self._last)[(len(self._last) - 1) // 2]


class ConnectionSlots:
    """The slots of an engine for connections of handlers; who waits longest is served first.

    Functions that hold their slots for much longer than another one get half of all, however many of their
    steps wait.
    """

    def __init__(
        self, node: Node, options: EngineOptions, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.transactions = node.step_transactions(options.connection_slots)
        self.size = options.connection_slots
        self.free = self.size
        self._most_slow = (self.size + 1) // 2
        self._patience = min(_PATIENCE, options.zombie_grace.total_seconds() / 2)
        self._lines: dict[Function, FunctionLine] = {}
        self._tickets = count()
        self._now = now

    def show(self) -> None:
        """Show in the metrics how many slots are taken and free, and how many steps wait for one."""
        metrics.CONNECTION_SLOTS.labels("busy").set_function(lambda: self.size - self.free)
        metrics.CONNECTION_SLOTS.labels("free").set_function(lambda: self.free)
        metrics.CONNECTION_WAITS.set_function(
            lambda: sum(len(line.waiting) for line in self._lines.values())
        )

    def line(self, function: Function) -> FunctionLine:
        """Return the line of a function."""
        if function not in self._lines:
            self._lines[function] = FunctionLine(self._now)
        return self._lines[function]

    def has_room(self, line: FunctionLine) -> bool:
        """Return whether a step of this line may have a slot now."""
        lines = self._lines.values()
        limit = max(_SLOW_FLOOR, _SLOW_FACTOR * min(each.typical for each in lines))
        if self.free <= 0 or not line.is_slow(limit):
            return self.free > 0
        return sum(len(each.held) for each in lines if each.is_slow(limit)) < self._most_slow

    def _lend(self, line: FunctionLine) -> HeldSlot:
        self.free -= 1
        return line.begin()

    async def take(self, line: FunctionLine, owner: StepConnections) -> HeldSlot:
        """Take a slot for a step of this line.

        NoConnection if none was free for too long, or the waits were ended.
        """
        if self.has_room(line):
            return self._lend(line)
        granted: asyncio.Future[HeldSlot | None] = asyncio.get_running_loop().create_future()
        line.waiting[granted] = WaitingStep(next(self._tickets), owner)
        try:
            # Not `asyncio.timeout`, which cancels: a step's task takes a cancellation for a stop.
            await asyncio.wait((granted,), timeout=self._patience)
        except BaseException:
            if (slot := self._left(line, granted)) is not None:
                self.give_back(slot)
            raise
        if (slot := self._left(line, granted)) is None:
            raise NoConnection
        return slot

    def _left(self, line: FunctionLine, granted: asyncio.Future[HeldSlot | None]) -> HeldSlot | None:
        """Take a step from the line; return its slot, if it has one."""
        line.waiting.pop(granted, None)
        return granted.result() if granted.done() else None

    def give_back(self, slot: HeldSlot) -> None:
        """Give a slot to the step that waits longest of those that may have one."""
        slot.line.end(slot)
        self.free += 1
        # More than one: where a function is not slow any more, its steps may have what was kept from them.
        while able := [each for each in self._lines.values() if each.waiting and self.has_room(each)]:
            first = min(able, key=lambda each: each.first_ticket)
            granted = next(iter(first.waiting))
            del first.waiting[granted]
            granted.set_result(self._lend(first))

    def refuse(self, owner: StepConnections) -> None:
        """End the waits of these steps."""
        for line in self._lines.values():
            for granted in [each for each, waiting in line.waiting.items() if waiting.owner is owner]:
                del line.waiting[granted]
                granted.set_result(None)


class StepConnections:
    """The transactions of the steps of one namespace; those that wait for one lend their slots."""

    def __init__(self, slots: ConnectionSlots) -> None:
        self._slots = slots
        self.pool: Pool
        """The pool of the namespace, which sets this as it is made."""
        self._closed = False

    @asynccontextmanager
    async def transaction(
        self, function: Function, wanted: WantedConnection, *, seconds: float
    ) -> AsyncIterator[StepTransaction]:
        """Yield the transaction of a step whose handler, this function, may run for so long.

        NoConnection if none was free for too long, StepNotSaved if none could be opened.
        """
        line = self._slots.line(function)
        slot = await self._take(line)
        try:
            async with self._slots.transactions.transaction(wanted, seconds=seconds) as own:
                yield own
        finally:
            self._slots.give_back(slot)

    async def _take(self, line: FunctionLine) -> HeldSlot:
        has_room = self._slots.has_room(line)
        if self._closed and not has_room:
            raise NoConnection
        if has_room or self.pool.lent >= MOST_WAITING:
            return await self._slots.take(line, self)
        with self.pool.lending_slot():
            return await self._slots.take(line, self)

    def close(self) -> None:
        """End all waits: the steps are handed back."""
        self._closed = True
        self._slots.refuse(self)
