"""Memory for results that are decided and not saved yet, of all steps of an engine.

Rule: a step begins while the budget is not used up, so one result alone always passes, however large. Only
saving frees the budget, and no save waits for a step: no step waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from progressor.storage import ROOM
from progressor.worker.slot import Slot

# How long a step waits to begin, in seconds. Its task is running meanwhile: it must not become a zombie.
_PATIENCE = 5.0


class NoRoom(Exception):
    """The step did not begin: the results of others wait to be saved."""


class ResultBudget:
    """So many bytes of unsaved results; `used` are those that slots hold now."""

    def __init__(self, most: int = ROOM) -> None:
        self._most = most
        self.used = 0
        # What waits for the next moment at which there is room, if anybody does.
        self._freed: asyncio.Future[None] | None = None
        self._on_room: list[Callable[[], None]] = []

    def notify(self, on_room: Callable[[], None]) -> None:
        """Call this each time that there is room again."""
        self._on_room.append(on_room)

    @property
    def is_used_up(self) -> bool:
        """Whether no step may begin."""
        return self.used >= self._most

    def take(self, slot: Slot, size: int) -> None:
        """Count the result that was decided in a slot."""
        slot.unsaved_bytes = size
        self.used += size

    def give_back(self, slot: Slot) -> None:
        """Count the slot's result no more, if there is one: it is saved, or dropped."""
        was_used_up = self.is_used_up
        self.used -= slot.unsaved_bytes
        slot.unsaved_bytes = 0
        if was_used_up and not self.is_used_up:
            if self._freed is not None:
                self._freed.set_result(None)
                self._freed = None
            for on_room in self._on_room:
                on_room()

    async def room(self) -> None:
        """Return when a step may begin; NoRoom if it may not for long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        while self.is_used_up:
            left = until - loop.time()
            if left <= 0:
                raise NoRoom
            if self._freed is None:
                self._freed = loop.create_future()
            # Not by cancelling: a step's task takes that for a stop.
            await asyncio.wait((self._freed,), timeout=left)
