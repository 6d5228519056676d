"""Memory for results that are decided and not saved yet, of all steps of an engine.

Rule: a step begins while the budget is not used up, so one result alone always passes, however large. Only
saving frees the budget, and no save waits for a step: no step waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from progressor.storage import ROOM
from progressor.worker.slot import Slot

# Seconds that a step waits to begin; short, because its task runs meanwhile and must not become a zombie.
_PATIENCE = 5.0


class NoRoom(Exception):
    """Raised in a step that cannot begin, because the results of others wait to be saved."""


class ResultBudget:
    """A bound in bytes on unsaved results; `used` of them are held by slots now."""

    def __init__(self, most: int = ROOM) -> None:
        self._most = most
        self.used = 0
        # Resolved when there is room again; None while no step waits.
        self._freed: asyncio.Future[None] | None = None
        self._on_room: list[Callable[[], None]] = []

    def notify(self, on_room: Callable[[], None]) -> None:
        """Register a callback for each time that there is room again."""
        self._on_room.append(on_room)

    @property
    def is_used_up(self) -> bool:
        """Return whether no step may begin."""
        return self.used >= self._most

    def take(self, slot: Slot, size: int) -> None:
        """Count a result of `size` bytes that was decided in a slot."""
        slot.unsaved_bytes = size
        self.used += size

    def give_back(self, slot: Slot) -> None:
        """Stop counting the slot's result, if it has one: it is saved or dropped."""
        before = self.used
        self.used -= slot.unsaved_bytes
        slot.unsaved_bytes = 0
        if before >= self._most > self.used:
            if self._freed is not None:
                self._freed.set_result(None)
                self._freed = None
            for on_room in self._on_room:
                on_room()

    async def room(self) -> None:
        """Wait until a step may begin; raise NoRoom if that takes longer than `_PATIENCE`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        while self.is_used_up:
            left = until - loop.time()
            if left <= 0:
                raise NoRoom
            if self._freed is None:
                self._freed = loop.create_future()
            # Not `asyncio.timeout`, which cancels: a step's task takes a cancellation for a stop.
            await asyncio.wait((self._freed,), timeout=left)
