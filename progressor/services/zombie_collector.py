"""The zombie collector: it takes tasks from workers that died or froze, or whose handlers run too long.

Rule: a worker is dead when its heartbeat is too old, never because its work takes long; a task is lost
when it outlived its step_timeout and a grace. No worker is judged before this process has seen for a whole
lease that writes get through: it renews a row as the workers do. Any number of collectors may run.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from progressor import metrics
from progressor.config import EngineOptions
from progressor.errors import ProgressorError
from progressor.loggers import Logger
from progressor.model import Disposition, shown_id
from progressor.node.node import Node
from progressor.node.replies import Replies
from progressor.node.witness import Witness
from progressor.services.service import PeriodicService
from progressor.storage import FROM_THE_START, Evidence, Storage, Zombie

log = Logger("progressor.zombie_collector")

# Zombies that one round takes.
_MOST = 1000
# Seconds; between two looks at leftovers and at other workers, neither of which is urgent.
_RARELY = 60.0


class ZombieCollector(PeriodicService):
    """The service that collects tasks of silent workers, and tasks that run too long, every `interval`.

    Silent: for longer than `lease_age`, or the longer lease that the worker keeps itself. Too long: longer
    than step_timeout + `grace`.
    """

    name = "zombie collector"

    def __init__(
        self,
        storage: Storage,
        replies: Replies,
        witness: Witness,
        *,
        interval: timedelta,
        lease_age: timedelta,
        grace: timedelta,
    ) -> None:
        super().__init__(interval)
        self._storage = storage
        self._replies = replies
        self._witness = witness
        self._lease_age = lease_age
        self._grace = grace
        self._leftovers_at = self._looks_around_at = 0.0
        self._place = FROM_THE_START
        self._judges: bool | None = None
        self._longest_lease = lease_age

    @property
    def is_well(self) -> bool:
        """True if it judges: a round that judges nobody shows nothing."""
        return self._judges is True

    async def run_once(self) -> timedelta | None:
        """Run one round; return zero if there may be more to collect."""
        began = time.monotonic()
        if began >= self._looks_around_at:
            await self._look_around()
            self._looks_around_at = began + _RARELY
        evidence = self._witness.evidence
        self._note(evidence)
        if evidence is None or not evidence.covers(self._lease_age):
            return None
        try:
            zombies = await self._storage.collect_zombies(
                evidence, lease_age=self._lease_age, grace=self._grace, limit=_MOST
            )
        except ProgressorError as error:
            # Steps may not have been saved, for the same reason.
            self._witness.forget(f"a round failed: {error}")
            raise
        for namespace in {zombie.task.namespace for zombie in zombies}:
            metrics.took(metrics.ZOMBIE_COLLECTION, began, namespace)
        for zombie in zombies:
            self._report(zombie)
        more = await self._cancel_stranded() or len(zombies) == _MOST
        if began >= self._leftovers_at:
            # Set first: a failing clean-up, if repeated at once, would hold up the next zombies.
            self._leftovers_at = began + _RARELY
            await self._storage.drop_workers(evidence, lease_age=self._lease_age)
            if await self._storage.drop_leftovers():
                self._leftovers_at, more = began, True
        return timedelta(0) if more else None

    async def _cancel_stranded(self) -> bool:
        """Cancel the next piece of stranded requests; return True if there may be more."""
        stranded = await self._storage.cancel_stranded(self._place)
        for ref in stranded.cancelled:
            self._replies.look(ref)
        self._place = stranded.place or FROM_THE_START
        return stranded.more

    def _note(self, evidence: Evidence | None) -> None:
        """Log when judging begins and ends, and why."""
        judges = evidence is not None and evidence.covers(self._lease_age)
        metrics.JUDGING.set(judges)
        if judges is not self._judges and evidence is not None:
            # At the start this is expected.
            level = logging.INFO if self._judges is None else logging.WARNING
            self._judges = judges
            if judges:
                log.info("zombies are collected", extra={"writes_seen_since": str(evidence.since)})
            else:
                log.log(level, "no zombies are collected for a lease", extra={"reason": evidence.because})

    async def _look_around(self) -> None:
        """Look up the namespaces that are served, and log a lease that is longer than this collector's."""
        # A collector that runs apart has no pools, so it announces the metrics of these namespaces itself.
        for served in await self._storage.served_namespaces(self._lease_age):
            metrics.expect(served)
        longest = await self._storage.longest_lease()
        if longest is not None and longest > self._longest_lease:
            self._longest_lease = longest
            log.warning(
                "some workers keep a longer lease than this collector, theirs counts for them",
                extra={"lease_age": str(self._lease_age), "longest": str(longest)},
            )

    def _report(self, zombie: Zombie) -> None:
        ref = zombie.task
        metrics.ZOMBIES.labels(ref.namespace, zombie.disposition.value).inc()
        log.warning(
            "zombie detected",
            extra={
                "namespace": ref.namespace,
                "process_id": zombie.process_id,
                "task_id": ref.task_id,
                "task_type": zombie.task_type.value,
                "worker_id": shown_id(zombie.worker_id),
                "disposition": zombie.disposition.value,
                "reason": zombie.reason,
            },
        )
        if zombie.disposition is Disposition.BREAK:
            metrics.BROKEN.labels(ref.namespace).inc()
        if zombie.disposition is not Disposition.RETRY:
            for each in (ref, *zombie.cancelled):
                self._replies.look(each)


def zombie_collector_on(node: Node, options: EngineOptions, witness: Witness) -> ZombieCollector:
    """Return a zombie collector of all namespaces, which judges by the evidence of `witness`."""
    return ZombieCollector(
        node.storage,
        node.replies,
        witness,
        interval=options.zombie_interval,
        lease_age=options.lease_age,
        grace=options.zombie_grace,
    )
