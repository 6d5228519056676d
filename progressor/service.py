"""A service that does one thing again and again: started, stopped, jittered, and deaf to outages."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from datetime import timedelta

from progressor.errors import ProgressorError

log = logging.getLogger("progressor.service")


class PeriodicService(ABC):
    """Calls `run_once` every interval, give or take a tenth, until stopped.

    An error of a round (an outage, most likely) is logged and ends that round alone.
    """

    name: str

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval.total_seconds()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @abstractmethod
    async def run_once(self) -> timedelta | None:
        """Do one round; a time until the next one, if it should come sooner than the interval."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"progressor {self.name}")

    async def stop(self) -> None:
        """End the service; a round under way is given up."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failing = False
        # Looked at as well: what a round awaits may swallow the cancellation.
        while not self._stopping:
            pause = self._interval * random.uniform(0.9, 1.1)  # noqa: S311 - jitter
            try:
                sooner = await self.run_once()
            except ProgressorError as error:
                # Say it once an outage, not once a round.
                if not failing:
                    log.warning(
                        "service round failed, going on",
                        extra={"service": self.name, "error": f"{type(error).__name__}"},
                    )
                failing = True
            except Exception:
                # A defect of ours must not end the service.
                log.exception("service round failed, going on", extra={"service": self.name})
            else:
                if failing:
                    log.info("service works again", extra={"service": self.name})
                failing = False
                if sooner is not None:
                    pause = min(pause, max(0.0, sooner.total_seconds()))
            if not self._stopping:
                await asyncio.sleep(pause)
