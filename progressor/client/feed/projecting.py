"""The receiver that runs the functions of a projection.

Rule: what they write and the checkpoint are one transaction, so each event counts once, whatever dies when.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from progressor.app.projection import Projection
from progressor.client.feed.forwarder import Receiver
from progressor.client.feed.slices import Checkpoint
from progressor.client.results import FeedEvent
from progressor.errors import StorageUnavailable
from progressor.errors.of_handlers import StepNotSaved, TransactionFailed
from progressor.loggers import Logger
from progressor.node.node import Node
from progressor.storage import Doubtful, StepTransaction

log = Logger("progressor.projection")


class ProjectionReceiver(Receiver):
    """The receiver of one projection, with a connection of its own."""

    kind = "projection"

    def __init__(self, node: Node, projection: Projection) -> None:
        self._node = node
        self._projection = projection
        self._wanted = projection.wanted
        self._seconds = projection.timeout.total_seconds()
        self._transactions = node.step_transactions(1)

    async def deliver(self, events: Sequence[FeedEvent], to: Checkpoint) -> None:
        clearing = self._projection.clearing if to.of.stored.walk == 0 else None
        if not events and clearing is None:
            await to.commit(self._node)
            return
        self._log_missed(events)
        async with self._transaction() as own:
            async with cast("Any", own.scope) as connection, asyncio.timeout(self._seconds):
                if clearing is not None:
                    await clearing(connection)
                for event in events:
                    await self._project(event, connection)
            try:
                await to.commit_in(own)
            except StepNotSaved as error:
                raise Doubtful from error

    def _log_missed(self, events: Sequence[FeedEvent]) -> None:
        """Log events that retention deleted before they came here: nothing tells their names any more."""
        missed = [each for each in events if each.is_deleted and self._projection.may_want(each.namespace)]
        if missed:
            first = missed[0]
            log.warning(
                "events were deleted before the projection read them",
                extra={
                    "projection": self._projection.subscription,
                    "events": len(missed),
                    "namespace": first.namespace,
                    "process_id": first.process_id,
                    "event_id": first.event_id,
                },
            )

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[StepTransaction]:
        async with self._transactions.transaction(self._wanted, seconds=self._seconds) as own:
            try:
                yield own
            except TransactionFailed as error:
                raise StepNotSaved(str(error)) from None
            except (Doubtful, StepNotSaved):
                raise
            except Exception as error:
                if own.is_lost:
                    raise StepNotSaved(f"the connection was lost ({type(error).__name__})") from error
                raise

    async def _project(self, event: FeedEvent, connection: Any) -> None:
        taking = (
            each.function
            for each in self._projection.functions
            if each.takes(event.namespace, event.kind, event.name)
        )
        # A function may be there several times, with patterns of which more than one fits.
        for function in dict.fromkeys(taking):
            await function(event, connection)

    def blames(self, error: Exception) -> bool:
        return not isinstance(error, (StepNotSaved, StorageUnavailable))

    async def close(self) -> None:
        """Close its connection."""
        await self._transactions.close()
