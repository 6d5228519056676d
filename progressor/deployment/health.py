"""How a service is, asked through its event loop from another thread.

Rule: a loop that does not answer in time is not healthy. Whether a service lives, or is ready, is asked of
its loop alone. An outage of PostgreSQL must restart nobody, because that would end what only waits for it,
and take nobody out of a balancer, because all would be out at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, TimeoutError as NoAnswer
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from progressor.client.results import Health

T = TypeVar("T")

Ask = Callable[[], Awaitable[Health]]


class Liveness(NamedTuple):
    """Whether a service lives; if not, why."""

    ok: bool
    detail: str | None = None


async def lives() -> Liveness:
    """What an event loop says that runs: it lives."""
    return Liveness(True)


class ServiceHealth:
    """Waits so long for an answer. Not healthy until `watch` says whom to ask, nor after `leave`.

    What starts or stops lives: both are bounded by those who do them.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._says: str = "starting"
        self._ask: tuple[asyncio.AbstractEventLoop, Ask] | None = None
        self._alive: tuple[asyncio.AbstractEventLoop, Callable[[], Awaitable[Liveness]]] | None = None

    def watch(self, ask: Ask, alive: Callable[[], Awaitable[Liveness]] = lives) -> None:
        """Ask these, on the running event loop, how things are and whether there is life."""
        loop = asyncio.get_running_loop()
        self._ask, self._alive = (loop, ask), (loop, alive)

    def leave(self) -> None:
        """Say from now on that the service stops, so that nobody counts on it any more."""
        self._says, self._ask = "stopping", None

    def health(self) -> Health:
        """Ask how things are now; called in a thread."""
        asked = self._ask
        if asked is None:
            return Health(False, self._says, 0, ())
        loop, ask = asked
        try:
            return answered(_awaited(ask), loop, self._seconds)
        except NoAnswer:
            says = f"no answer within {self._seconds:g} s from the event loop or the database"
            return Health(False, says, 0, ())
        except LoopEnded:
            return Health(False, "stopping", 0, ())

    def life(self) -> Liveness:
        """Ask whether the event loop answers; called in a thread."""
        if self._alive is None:
            return Liveness(True, "starting")
        loop, alive = self._alive
        try:
            return answered(_awaited(alive), loop, self._seconds)
        except NoAnswer:
            return Liveness(False, f"no answer within {self._seconds:g} s from the event loop")
        except LoopEnded:
            return Liveness(True, "stopping")

    def readiness(self) -> Liveness:
        """Ask whether it has started, does not stop, and answers; called in a thread."""
        if self._ask is None:
            return Liveness(False, self._says)
        life = self.life()
        return Liveness(life.ok and life.detail is None, life.detail)


class LoopEnded(Exception):
    """The event loop is closed, or was closed before it came to the question."""


async def _awaited(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()


def answered(question: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, seconds: float) -> T:
    """Ask this on the loop of another thread, and return what it says.

    Raises TimeoutError if it says nothing in time, LoopEnded if there is nobody to ask any more.
    """
    try:
        future = asyncio.run_coroutine_threadsafe(question, loop)
    except RuntimeError:
        question.close()
        raise LoopEnded from None
    try:
        return future.result(seconds)
    except NoAnswer:
        future.cancel()
        if loop.is_closed():
            # What awaits while it is closed cannot be: it is forgotten.
            with suppress(RuntimeError):
                question.close()
            raise LoopEnded from None
        raise
    except CancelledError:
        # So ends what runs when a loop is closed.
        raise LoopEnded from None
