"""The bulk runner: it begins the repairs of bulks, at their rate, and counts what became of them.

Rule: it keeps no state. A round begins and ends with what is stored, so that any runner goes on where
another one was stopped or killed; its metrics come from the tables too. Any number of runners may run;
workers do the repairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from progressor import metrics
from progressor.bulks import COUNTS, Bulk, BulkRound
from progressor.config import EngineOptions
from progressor.loggers import Logger
from progressor.node.node import Node
from progressor.services.service import PeriodicService
from progressor.storage import Kind, RunningBulks

log = Logger("progressor.bulk_runner")

# The longest time between two looks for new bulks.
_LONGEST_INTERVAL = timedelta(seconds=1)


class BulkRunner(PeriodicService):
    """The service that runs a round of the bulk that is due first, then sleeps until the next is due."""

    name = "bulk runner"

    def __init__(self, node: Node, *, interval: timedelta) -> None:
        super().__init__(interval)
        self._node = node
        self._storage = node.storage
        self._shown: set[str] = set()

    async def run_once(self) -> timedelta | None:
        """Run a round if one is due; return the time until the next one, None for a whole interval."""
        due_in = await self._storage.next_bulk()
        # Shown before the round: a bulk whose rounds fail must be seen to stand still.
        self._show([] if due_in is None else await self._storage.running_bulks())
        if due_in is None or due_in > timedelta():
            return due_in
        done = await self._storage.run_bulk()
        if done is None:
            # Another runner runs it.
            return None
        self._tell(done)
        return await self._storage.next_bulk()

    async def stop(self) -> None:
        await super().stop()
        # A gauge that nobody updates any more must not keep its last value.
        self._show([])

    def _show(self, running: Sequence[RunningBulks]) -> None:
        for each in running:
            metrics.publish_bulks(each.namespace, running=each.bulks, still=each.still)
        names = {each.namespace for each in running}
        for namespace in self._shown - names:
            metrics.forget_bulks(namespace)
        self._shown = names

    def _tell(self, done: BulkRound) -> None:
        bulk, new = done
        for outcome in metrics.BULK_OUTCOMES:
            metrics.BULK_REPAIRS.labels(bulk.namespace, outcome).inc(new[outcome])
        # Repairs wait as requests; a simple repair needs none, and brings back the timer.
        begun: Kind = "timers" if bulk.simple else "calls"
        for outcome, kind in (("begun", begun), ("redone", "calls")):
            if new[outcome]:
                self._node.ring(bulk.namespace, kind)
                self._node.wake(bulk.namespace, kind)
        if bulk.status.is_final:
            log.info("bulk ended", extra=_facts(bulk))


def _facts(bulk: Bulk) -> dict[str, object]:
    return {
        "bulk_id": bulk.bulk_id,
        "namespace": bulk.namespace,
        "status": bulk.status.value,
        **{name: getattr(bulk, name) for name in COUNTS},
    }


def bulk_runner_on(node: Node, options: EngineOptions) -> BulkRunner:
    """Return a runner of all bulks."""
    return BulkRunner(node, interval=min(options.zombie_interval, _LONGEST_INTERVAL))
