"""Limits after which another worker takes a worker's place: a number of steps, or an age.

They are for handlers that leak memory, and for files that an OS process reads only at its start although
they change (credentials, certificates). Rule: a setting is an upper bound. Each worker draws its own limit
from the last fifth below it, so that workers that began together do not leave together.
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
# Seconds between two looks at the steps that the worker has performed.
_LOOKS = 0.25


class Runs(Protocol):
    """A worker that counts the steps that it has performed."""

    @property
    def performed(self) -> int: ...


W = TypeVar("W", bound=Runs)


class Recycling:
    """The limits of one worker, drawn when this is made; None means no limit."""

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
        """Enter this worker, and call `then` once it has reached a limit."""
        async with worker as running:
            if min(self.steps, self.seconds) < math.inf:
                self._background.keep("recycling", partial(self._watch, running, then))
            try:
                yield running
            finally:
                await self._background.stop()

    async def _watch(self, worker: Runs, then: Callable[[], None]) -> None:
        # A look now and then costs a step only its count.
        while (done := worker.performed) < self.steps and self._age() < self.seconds:  # noqa: ASYNC110 - see above
            await asyncio.sleep(min(_LOOKS, max(0.0, self.seconds - self._age())))
        reason = "steps" if done >= self.steps else "age"
        log.info(
            "worker has done its share",
            extra={"reason": reason, "steps": done, "seconds": round(self._age(), 1)},
        )
        then()

    def _age(self) -> float:
        return time.monotonic() - self._began
