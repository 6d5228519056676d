"""Services that repeat one round: started, stopped, jittered, and not ended by outages."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from datetime import timedelta

from progressor.errors import ProgressorError
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines, cause_of
from progressor.supervision import Background

log = Logger("progressor.service")

_LINES = OutageLines("service round failed, going on", "service rounds still fail", "service works again")


class PeriodicService(ABC):
    """A service that calls `run_once` every interval, give or take a tenth, until it is stopped.

    An error ends its round alone: a ProgressorError is logged as an outage, any other as a defect.
    """

    name: str

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval.total_seconds()
        self._background = Background()
        self._outage = Outage(log, _LINES, service=self.name)

    @abstractmethod
    async def run_once(self) -> timedelta | None:
        """Run one round; return the time until the next if it should come sooner than the interval."""

    @property
    def is_well(self) -> bool:
        """True if the round that has just ended shows that what failed before works again."""
        return True

    def start(self) -> None:
        self._background.keep(self.name, self._run)

    async def stop(self) -> None:
        """End the service; a round under way is given up."""
        await self._background.stop()

    async def _run(self) -> None:
        while True:
            pause = self._interval * random.uniform(0.9, 1.1)  # noqa: S311 - jitter
            try:
                sooner = await self.run_once()
            except ProgressorError as error:
                self._outage.failed(cause_of(error))
            else:
                if self.is_well:
                    self._outage.worked()
                if sooner is not None:
                    pause = min(pause, max(0.0, sooner.total_seconds()))
            await asyncio.sleep(pause)
