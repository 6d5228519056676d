"""Health of a service, read through its event loop from another thread.

Rule: a loop that does not answer in time is not healthy, and its pulse shows since when. A question bounds
its own wait for PostgreSQL, so that only the loop can leave it without an answer. Liveness and readiness do
not ask PostgreSQL. An outage of PostgreSQL must restart no service, because that would end steps that only
wait for it, and take none out of a balancer, because all would be out at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, TimeoutError as NoAnswer
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from progressor.client.results import Health
from progressor.supervision import watched
from progressor.texts import duration

T = TypeVar("T")

DATABASE_SECONDS = 1.0
"""The seconds that a question may wait for PostgreSQL: less than a ServiceHealth waits for the question."""
# Seconds: between two beats of a loop; after its last beat a loop is blocked.
_PULSE, _BLOCKED = 0.2, 0.5

Ask = Callable[[], Awaitable[Health]]


class Liveness(NamedTuple):
    """The liveness of a service; `detail` is the reason if it is not live, or not ready."""

    ok: bool
    detail: str | None = None


async def lives() -> Liveness:
    """Return a Liveness that is ok: an event loop that runs this lives."""
    return Liveness(True)


class _Pulse:
    """The pulse of the running event loop; any thread may read how long ago its last beat was."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._again = watched("pulse", self._beat)
        self._beat()

    def _beat(self) -> None:
        self._last = time.monotonic()
        self._loop.call_later(_PULSE, self._again)

    @property
    def age(self) -> float:
        """The seconds since the last beat."""
        return time.monotonic() - self._last


class ServiceHealth:
    """The health of one service, whose answers may take `seconds`.

    It is not healthy before `watch`, nor after `leave`. It is live while it starts or stops, for other code
    bounds both.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._says: str = "starting"
        self._ask: tuple[asyncio.AbstractEventLoop, Ask] | None = None
        self._alive: tuple[asyncio.AbstractEventLoop, Callable[[], Awaitable[Liveness]]] | None = None
        self._pulse: _Pulse | None = None

    def watch(self, ask: Ask, alive: Callable[[], Awaitable[Liveness]] = lives) -> None:
        """Take health and liveness from these calls, on the event loop that runs now."""
        loop = asyncio.get_running_loop()
        self._ask, self._alive, self._pulse = (loop, ask), (loop, alive), _Pulse()

    def leave(self) -> None:
        """Report from now on that the service stops, so that nobody sends requests to it any more."""
        self._says, self._ask = "stopping", None

    def health(self) -> Health:
        """Return the present health; call it in a thread."""
        asked = self._ask
        if asked is None:
            return Health(False, self._says, 0, ())
        loop, ask = asked
        try:
            return answered(_awaited(ask), loop, self._seconds)
        except NoAnswer:
            return self._unanswered()
        except LoopEnded:
            return Health(False, "stopping", 0, ())

    def _unanswered(self) -> Health:
        lasts = 0.0 if self._pulse is None else round(self._pulse.age, 1)
        if lasts < _BLOCKED:
            says = f"no answer within {self._seconds:g} s, though the event loop runs"
            return Health(False, says, 0, ())
        says = (
            f"the event loop has been blocked for {duration(timedelta(seconds=lasts))}: "
            "if a handler blocks it, the log names it"
        )
        return Health(False, says, 0, (), fault="event_loop", fault_seconds=lasts)

    def life(self) -> Liveness:
        """Return the liveness: does the event loop answer? Call it in a thread."""
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
        """Return the readiness: has it started, does it answer, and not stop? Call it in a thread."""
        if self._ask is None:
            return Liveness(False, self._says)
        life = self.life()
        return Liveness(life.ok and life.detail is None, life.detail)


class LoopEnded(Exception):
    """The event loop is closed, or was closed before it could answer."""


async def _awaited(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()


def answered(question: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, seconds: float) -> T:
    """Run a coroutine on the loop of another thread, and return its result.

    Raises TimeoutError after so many seconds, LoopEnded if the loop has ended.
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
            # A coroutine that awaits while it is closed raises RuntimeError: it is dropped.
            with suppress(RuntimeError):
                question.close()
            raise LoopEnded from None
        raise
    except CancelledError:
        # A loop that is closed cancels its tasks.
        raise LoopEnded from None
