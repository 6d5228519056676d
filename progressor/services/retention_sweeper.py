"""The retention sweeper: it walks through processes and deletes what their namespaces keep no longer.

Rule: it keeps no state. A round begins and ends with what is stored, so that any sweeper goes on where
another one was stopped or killed. Any number may run; one at a time walks through a namespace.
"""

from __future__ import annotations

from datetime import timedelta

from progressor import metrics
from progressor.config import EngineOptions
from progressor.node.node import Node
from progressor.services.service import PeriodicService
from progressor.storage import Storage

# The longest time between two looks for a walk that is due.
_INTERVAL = timedelta(seconds=10)


class RetentionSweeper(PeriodicService):
    """The service that runs a round of the walk that is due first, then sleeps until the next is due.

    It deletes at most `rate` rows a second of each namespace.
    """

    name = "retention sweeper"

    def __init__(self, storage: Storage, *, rate: float, interval: timedelta) -> None:
        super().__init__(interval)
        self._storage = storage
        self._rate = rate

    async def run_once(self) -> timedelta | None:
        """Run a round if one is due; return the time until the next one, None for a whole interval."""
        swept = await self._storage.sweep(rate=self._rate)
        if swept is None:
            due_in = await self._storage.next_sweep()
            # Whatever is due all the same, another sweeper runs it now.
            return due_in if due_in is None or due_in > timedelta(0) else None
        for kind in metrics.SWEPT_KINDS:
            metrics.SWEPT.labels(swept.namespace, kind).inc(getattr(swept, kind))
        return await self._storage.next_sweep()


def retention_sweeper_on(node: Node, options: EngineOptions) -> RetentionSweeper:
    """Return a sweeper of all namespaces."""
    return RetentionSweeper(
        node.storage, rate=options.retention_rate, interval=min(options.zombie_interval, _INTERVAL)
    )
