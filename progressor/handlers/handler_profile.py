"""Profiles of functions: does one wait for anything, and how long does it compute?

Rule: each run is measured, at no cost that a step would feel. A function that never waited may be run
while a transaction is open; one that waits, or computes for long, may not.
"""

from __future__ import annotations

import time
import types
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from progressor.handlers.running.contexts import rest_of

Fuse = Literal["learned", "always", "never"]

# Seconds; the longest computation of a function that may be learned to run behind a lock.
MOST_COMPUTED = 0.0005
# A factor for each run: how fast a long one is forgotten.
_FADES = 0.9


class HandlerProfile:
    """The profile of one function: its author's word, and the measurements of its runs."""

    __slots__ = ("seconds", "stated", "waits", "was_run")

    def __init__(self, *, stated: bool | None = None) -> None:
        self.stated = stated
        """True if its author lets it run behind a lock, False if not; None: that is learned."""
        self.was_run = False
        self.waits = False
        self.seconds = 0.0

    def fusable_seconds(self, fuse: Fuse) -> float | None:
        """Return the seconds it is expected to compute, if it may be run behind a lock; else None."""
        if fuse == "never" or self.stated is False:
            return None
        if fuse == "always" or self.stated:
            return self.seconds
        return self.seconds if self.was_run and not self.waits and self.seconds <= MOST_COMPUTED else None

    def bar(self) -> None:
        """Never run it behind a lock again, whatever its author allows."""
        self.stated = False

    async def watched(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run the function to its end, and measure it."""
        running = function(*args)
        if not isinstance(running, types.CoroutineType):
            # Not of an `async def`: it can only be awaited, so it counts as one that waits.
            self.waits = True
            return await running
        began = time.perf_counter()
        try:
            waited_for = running.send(None)
        except StopIteration as ended:
            return ended.value
        finally:
            self.was_run = True
            self.seconds = max(time.perf_counter() - began, self.seconds * _FADES)
        self.waits = True
        return await rest_of(running, waited_for)
