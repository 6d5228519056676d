"""When a worker has done its share, and another one takes its place: after so many steps, or so much time.

For handlers that leak memory, and for what is read once when a process begins and changes (credentials,
certificates).
Rule: a limit is a limit. Each worker draws its own from the last fifth below it, so that those that began
together do not leave together.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

from progressor.loggers import Logger
from progressor.supervision import Background

log = Logger("progressor.recycling")

_SPREAD = 0.2
# How often it is looked, in seconds.
_LOOKS = 0.25


class Runs(Protocol):
    """What runs steps, and counts them."""

    @property
    def performed(self) -> int: ...


W = TypeVar("W", bound=Runs)


class Recycling:
    """The limits of one worker, drawn when it is made."""

    def __init__(self, *, max_steps: int | None, max_age: timedelta | None) -> None:
        part = 1 - random.uniform(0, _SPREAD)  # noqa: S311 - jitter
        self.steps = math.inf if max_steps is None else max(1, int(max_steps * part))
        self.seconds = math.inf if max_age is None else max_age.total_seconds() * part
        self._began = time.monotonic()
        self._background = Background()

    @asynccontextmanager
    async def of(
        self, worker: AbstractAsyncContextManager[W], then: Callable[[], None]
    ) -> AsyncIterator[W]:
        """Enter this worker, and do `then` once it has done its share."""
        async with worker as running:
            if min(self.steps, self.seconds) < math.inf:
                self._background.keep("recycling", partial(self._watch, running, then))
            try:
                yield running
            finally:
                await self._background.stop()

    async def _watch(self, worker: Runs, then: Callable[[], None]) -> None:
        # A look now and then costs a step nothing but the counting.
        while (done := worker.performed) < self.steps and self._age() < self.seconds:  # noqa: ASYNC110 - above
            await asyncio.sleep(min(_LOOKS, max(0.0, self.seconds - self._age())))
        reason = "steps" if done >= self.steps else "age"
        log.info(
            "worker has done its share",
            extra={"reason": reason, "steps": done, "seconds": round(self._age(), 1)},
        )
        then()

    def _age(self) -> float:
        return time.monotonic() - self._began
