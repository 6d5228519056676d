"""The service of `progressor sink`: it forwards to all sinks of a file, each beside the others.

Rule: a sink that fails holds up no other. Any number of services may run with the same file: of each
subscription one sends at a time, and another goes on when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from progressor import metrics
from progressor.client.engine_client import EngineClient
from progressor.errors import ProgressorError
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines, cause_of
from progressor.sinks.config import ConfiguredSink
from progressor.sinks.function import FunctionOptions
from progressor.supervision import Background

log = Logger("progressor.sinks")

_LINES = OutageLines(
    "sink does not work, it is tried again", "sink still does not work", "sink works again"
)
# Seconds between two tries.
_PAUSE = 5.0


class SinksService:
    """The service that runs the sinks of one file."""

    name = "sinks"

    def __init__(self, client: EngineClient, sinks: Sequence[ConfiguredSink]) -> None:
        self._client = client
        self._sinks = sinks
        self._background = Background()

    def start(self) -> None:
        for each in self._sinks:
            self._background.keep("sink", partial(self._keep, each))

    async def stop(self) -> None:
        """End the service; what was not committed is sent again by the next one."""
        await self._background.stop()

    async def _keep(self, each: ConfiguredSink) -> None:
        """Forward to a sink; while it is refused, for want of a feed say, log why, count it, and try."""
        outage = Outage(log, _LINES, subscription=each.name)
        while True:
            try:
                return await self._forward(each)
            except ProgressorError as error:
                metrics.BACKGROUND_FAILURES.labels("sink").inc()
                outage.failed(cause_of(error))
            await asyncio.sleep(_PAUSE)

    async def _forward(self, each: ConfiguredSink) -> None:
        forwarded = each.forwarded
        if isinstance(each.options, FunctionOptions):
            await self._client.project(each.options.projection(each.name, forwarded))
            return
        sink = each.options.open()
        try:
            await self._client.forward(each.name, sink, **forwarded.model_dump())
        finally:
            await sink.close()
