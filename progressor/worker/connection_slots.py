"""Slots for steps whose handlers run SQL of their own: each has a connection for as long as it runs.

Rule: a step that waits for a connection lends its namespace's slot to other steps, and waits for a short
time only, because its task runs meanwhile and must not become a zombie. So many may wait in this way that
memory is bounded; more wait in the slots of their namespace, and so delay the claims.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from progressor import metrics
from progressor.config import EngineOptions
from progressor.model import WantedConnection
from progressor.node.node import Node
from progressor.storage import StepTransaction, StepTransactions
from progressor.worker.result_budget import NoRoom

# Seconds; a step that found no connection for so long is handed back.
_PATIENCE = 5.0
# Steps of a namespace that wait for a connection outside of its slots.
MOST_WAITING = 1_000


class NoConnection(NoRoom):
    """Raised in a step that found no free connection, and did not begin."""


class Lender(Protocol):
    """The pool of a namespace, whose slot a waiting step lends."""

    def take(self) -> None: ...

    def release(self) -> None: ...


class ConnectionSlots:
    """The slots of an engine for connections of handlers; who waits longest is served first."""

    def __init__(self, node: Node, options: EngineOptions) -> None:
        self.transactions = StepTransactions(
            node.dsn,
            node.storage,
            limit=options.connection_slots,
            schema=options.database_schema,
            session_state=options.session_state,
            clock=node.clock,
        )
        self.size = options.connection_slots
        self.free = self.size
        self._patience = min(_PATIENCE, options.zombie_grace.total_seconds() / 2)
        # The waiting steps, each by what resolves to whether it has a slot.
        self._waiting: dict[asyncio.Future[bool], StepConnections] = {}

    def show(self) -> None:
        """Show in the metrics how many slots are taken and free, and how many steps wait for one."""
        metrics.CONNECTION_SLOTS.labels("busy").set_function(lambda: self.size - self.free)
        metrics.CONNECTION_SLOTS.labels("free").set_function(lambda: self.free)
        metrics.CONNECTION_WAITS.set_function(lambda: len(self._waiting))

    async def take(self, of: StepConnections) -> None:
        """Take a slot for a step of these.

        NoConnection if none was free for too long, or the waits were ended.
        """
        if self.free > 0:
            self.free -= 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting[granted] = of
        try:
            # Not `asyncio.timeout`, which cancels: a step's task takes a cancellation for a stop.
            await asyncio.wait((granted,), timeout=self._patience)
        except BaseException:
            if self._left(granted):
                self.give_back()
            raise
        if not self._left(granted):
            raise NoConnection

    def _left(self, granted: asyncio.Future[bool]) -> bool:
        """Take a step from the line; return whether it has a slot."""
        self._waiting.pop(granted, None)
        return granted.done() and granted.result()

    def give_back(self) -> None:
        """Give a slot to the step that waits longest, if there is one."""
        if self._waiting:
            granted = next(iter(self._waiting))
            del self._waiting[granted]
            granted.set_result(True)
        else:
            self.free += 1

    def refuse(self, of: StepConnections) -> None:
        """End the waits of these steps."""
        for granted in [each for each, owner in self._waiting.items() if owner is of]:
            del self._waiting[granted]
            granted.set_result(False)


class StepConnections:
    """The transactions of the steps of one namespace; `lent` steps wait for one, and lend their slots."""

    def __init__(self, slots: ConnectionSlots) -> None:
        self._slots = slots
        self.lender: Lender
        """Set by the pool of the namespace, as it is made."""
        self.lent = 0
        self._closed = False

    @asynccontextmanager
    async def transaction(self, wanted: WantedConnection, seconds: float) -> AsyncIterator[StepTransaction]:
        """Yield the transaction of a step whose handler may run for so long.

        NoConnection if none was free for too long, StepNotSaved if none could be opened.
        """
        await self._take()
        try:
            async with self._slots.transactions.transaction(wanted, seconds=seconds) as own:
                yield own
        finally:
            self._slots.give_back()

    async def _take(self) -> None:
        if self._closed and self._slots.free <= 0:
            raise NoConnection
        if self._slots.free > 0 or self.lent >= MOST_WAITING:
            await self._slots.take(self)
            return
        self.lent += 1
        self.lender.release()
        try:
            await self._slots.take(self)
        finally:
            self.lent -= 1
            self.lender.take()

    def close(self) -> None:
        """End all waits: the steps are handed back."""
        self._closed = True
        self._slots.refuse(self)
