"""How a function has behaved so far: whether it ever waited for anything, and for how long it computes.

Rule: it is learned from each run, at no cost that a step would feel. What never waited can be run while a
transaction is open; what waits, or computes for long, is not.
"""

from __future__ import annotations

import inspect
import time
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Literal

Fuse = Literal["learned", "always", "never"]

# Longer than this, in seconds, nobody computes behind a lock.
MOST_COMPUTED = 0.0005
# How soon a long run is forgotten.
_FADES = 0.9


class HandlerProfile:
    """What is known of one function."""

    __slots__ = ("seconds", "stated", "waits", "was_run")

    def __init__(self, *, stated: bool | None = None) -> None:
        self.stated = stated
        """Whether its author lets it run behind a lock; None: that is learned."""
        self.was_run = False
        self.waits = False
        self.seconds = 0.0

    def computes(self, fuse: Fuse) -> float | None:
        """For how many seconds it is expected to compute, if it may be run behind a lock; else None."""
        if fuse == "never" or self.stated is False:
            return None
        if fuse == "always" or self.stated:
            return self.seconds
        return self.seconds if self.was_run and not self.waits and self.seconds <= MOST_COMPUTED else None

    def bar(self) -> None:
        """Run it behind a lock never again, whatever its author says."""
        self.stated = False

    async def watched(self, running: Awaitable[Any]) -> Any:
        """Run it to its end, and learn from it."""
        if not inspect.iscoroutine(running):
            # Made by other means than `async def`: it can be awaited, and nothing else is known of it.
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
        return await _rest(running, waited_for)


@types.coroutine
def _rest(running: Coroutine[Any, Any, Any], waited_for: Any) -> Generator[Any, Any, Any]:
    """What `await running` would go on with, now that it has begun and waits."""
    try:
        while True:
            try:
                sent = yield waited_for
            except GeneratorExit:
                running.close()
                raise
            except BaseException as error:  # noqa: BLE001 - a cancellation too is the coroutine's
                waited_for = running.throw(error)
            else:
                waited_for = running.send(sent)
    except StopIteration as ended:
        return ended.value
