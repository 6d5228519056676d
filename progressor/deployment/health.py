"""How a service is, asked through its event loop from another thread.

Rule: a loop that does not answer in time is not healthy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any, TypeVar

from progressor.client.results import Health

T = TypeVar("T")

Ask = Callable[[], Awaitable[Health]]


class HealthCheck:
    """Waits so long for an answer. Not healthy until `watch` says whom to ask, nor after `leave`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._says: str = "starting"
        self._ask: tuple[asyncio.AbstractEventLoop, Ask] | None = None

    def watch(self, ask: Ask) -> None:
        """Ask this, on the running event loop, how things are."""
        self._ask = asyncio.get_running_loop(), ask

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


class LoopEnded(Exception):
    """The event loop is closed."""


async def _awaited(ask: Ask) -> Health:
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
        raise
