"""The retention sweeper: it walks through processes and deletes what their namespaces keep no longer.

Rule: it keeps no state but what it has logged. A round begins and ends with what is stored, so that any
sweeper goes on where another one was stopped or killed. Any number may run; one at a time walks through a
namespace.
"""

from __future__ import annotations

from datetime import timedelta

from progressor import metrics
from progressor.archive.archive import Archive
from progressor.config import EngineOptions
from progressor.loggers import Logger
from progressor.node.node import Node
from progressor.services.service import PeriodicService
from progressor.storage import Batch, Storage, Swept

log = Logger("progressor.retention")

# The longest time between two looks for a walk that is due.
_INTERVAL = timedelta(seconds=10)


class RetentionSweeper(PeriodicService):
    """The service that runs a round of the walk that is due first, then sleeps until the next is due.

    It deletes at most `rate` rows a second of each namespace.
    """

    name = "retention sweeper"

    def __init__(
        self, storage: Storage, *, rate: float, interval: timedelta, archive: Archive | None = None
    ) -> None:
        super().__init__(interval)
        self._archive = archive
        self._storage = storage
        self._rate = rate
        # By namespace.
        self._faults: dict[str, str] = {}
        self._is_archiving = True

    @property
    def is_well(self) -> bool:
        """True unless the archive failed: a round in which its walk is put off shows nothing."""
        return self._is_archiving

    async def run_once(self) -> timedelta | None:
        """Run a round if one is due; return the time until the next one, None for a whole interval."""
        swept = await self._storage.sweep(rate=self._rate) or await self._sweep_archived()
        if swept is None:
            due_in = await self._next_sweep()
            # Whatever is due all the same, another sweeper runs it now.
            return due_in if due_in is None or due_in > timedelta(0) else None
        self._log_fault(swept.namespace, swept.fault)
        if swept.damage is not None:
            facts = {"namespace": swept.namespace, "cause": swept.damage}
            log.warning("retention met damage, the walk goes on later", extra=facts)
        for kind in metrics.SWEPT_KINDS:
            metrics.SWEPT.labels(swept.namespace, kind).inc(getattr(swept, kind))
        return await self._next_sweep()

    async def _next_sweep(self) -> timedelta | None:
        return await self._storage.next_sweep(archives=self._archive is not None)

    async def _sweep_archived(self) -> Swept | None:
        """Run a round of a walk into the archive; ArchiveUnavailable if it cannot be written."""
        archive = self._archive
        if archive is None:
            return None

        async def keep(batch: Batch) -> None:
            self._is_archiving = False
            await archive.keep(batch.namespace, batch.first, batch.last, batch.records)

        swept = await self._storage.sweep_archived(keep, rate=self._rate)
        self._is_archiving = self._is_archiving or swept is not None
        return swept

    def _log_fault(self, namespace: str, fault: str | None) -> None:
        """Log what is wrong with the times of a namespace, once for as long as it is the same."""
        if fault is None:
            self._faults.pop(namespace, None)
        elif self._faults.get(namespace) != fault:
            self._faults[namespace] = fault
            facts = {"namespace": namespace, "cause": fault}
            log.warning("retention cannot be read, everything is kept", extra=facts)


def retention_sweeper_on(node: Node, options: EngineOptions) -> RetentionSweeper:
    """Return a sweeper of all namespaces."""
    return RetentionSweeper(
        node.storage,
        rate=options.retention_rate,
        interval=min(options.zombie_interval, _INTERVAL),
        archive=node.archive,
    )
