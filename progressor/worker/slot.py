"""What a chain of steps runs in, and a step that began before its task was committed."""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import Future
from typing import Any, NamedTuple

from progressor.model import Decision, Task
from progressor.storage import Claimed


def new_lease() -> int:
    """A number that no other claim has."""
    return secrets.randbits(62)


class Slot:
    """What a chain of steps runs in.

    `goes_on` says whether the chain may go on with what comes next on its process; `hung` is the task whose
    sync handler runs on in its thread after the step: the slot is its own until it returns.
    """

    __slots__ = ("goes_on", "hung")

    def __init__(self, *, goes_on: bool = True) -> None:
        self.goes_on = goes_on
        self.hung: tuple[Task, Future[Any]] | None = None


class Begun(NamedTuple):
    """A step whose handler began before its task is committed."""

    held: Claimed
    slot: Slot
    deciding: asyncio.Task[Decision]

    def decided(self) -> Decision | None:
        """What becomes of it, if its handler has come to its end."""
        done = self.deciding.done() and not self.deciding.cancelled() and self.deciding.exception() is None
        return self.deciding.result() if done else None

    def give_up(self) -> None:
        """Its task is not committed: what the handler did is nothing."""
        if self.deciding.done():
            self.decided()
        else:
            self.deciding.cancel()
