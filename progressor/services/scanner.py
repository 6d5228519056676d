"""The scanner: it wakes workers when calls wait or timers fall due, and publishes what waits.

Rule: it finds the work of every lost hint, and changes no process: any number of scanners may run. It notes
the load of each namespace once a minute. It sleeps until the next timer is due, at most one interval, and
wakes no more workers than there is work.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from datetime import timedelta

from progressor import metrics
from progressor.config import EngineOptions
from progressor.errors import InvalidRequest
from progressor.loggers import Logger
from progressor.monitoring import NamespaceStatus, Waiting
from progressor.node.node import Node
from progressor.services.service import PeriodicService
from progressor.storage import Backlog, Kind, Storage

log = Logger("progressor.scanner")

Wake = Callable[[int, str, Kind], None]

# Tasks; a round counts no further: enough for a gauge and for spreading the wakes.
_MOST = 1000
# Seconds between two looks at what wakes no worker: the age of the oldest snapshot, deep mailboxes, broken
# processes.
_PAUSE = 60.0
# Seconds; scanners that wait for the same timer look a little apart, so that the first one's wake is
# enough.
_SPREAD = 0.010


class Scanner(PeriodicService):
    """The service that watches `namespaces`, or all; `wake(worker_id, namespace, kind)` sends one hint."""

    name = "scanner"

    def __init__(
        self,
        storage: Storage,
        *,
        interval: timedelta,
        lease_age: timedelta,
        wake: Wake,
        namespaces: Sequence[str] | None = None,
    ) -> None:
        # Calls need a look three times as often as timers, which have an alarm of their own; each round
        # looks at both.
        super().__init__(interval / 3)
        self._storage = storage
        self._lease_age = lease_age
        self._wake = wake
        self._namespaces = namespaces
        self._published: set[str] = set()
        # Namespaces whose broken processes are published, even if no worker serves them.
        self._broken: set[str] = set()
        self._paused: set[str] = set()
        self._snapshots_at = 0.0
        # The time of the next look at each namespace.
        self._looks_at: dict[str, float] = {}
        # What this round has looked at, to be noted once all are woken.
        self._looked_at: list[NamespaceStatus] = []

    async def run_once(self) -> timedelta | None:
        """Look at every namespace once; return the time until the next timer is due, None if there is none.

        InvalidRequest, at the end of the round, if the rows of a namespace cannot be read.
        """
        self._looked_at.clear()
        workers = await self._storage.served_namespaces(self._lease_age)
        names = self._namespaces
        if names is None:
            names = await self._storage.namespace_names()
        idle = await self._idle(names)
        soonest: timedelta | None = None
        failure: InvalidRequest | None = None
        for name in names:
            try:
                due_in = await self._scan(name, workers.get(name, 0), idle.get(name))
            except InvalidRequest as error:
                # Rows of this namespace cannot be read: look at the others first, then raise.
                failure = failure or error
                continue
            if due_in is not None and (soonest is None or due_in < soonest):
                soonest = due_in
        if self._looked_at:
            await self._storage.note_samples(self._looked_at)
        if failure is not None:
            raise failure
        known = set(names)
        self._forget(self._published - known)
        self._forget_broken(self._broken - known)
        for retired in self._looks_at.keys() - known:
            del self._looks_at[retired]
        await self._look_at_snapshots()
        if soonest is None:
            return None
        return soonest + timedelta(seconds=random.uniform(0, _SPREAD))  # noqa: S311 - jitter

    async def _idle(self, names: Sequence[str]) -> Mapping[str, Backlog]:
        """Return the backlogs of those where nothing is due, in one look at all."""
        if len(names) <= 1:
            # The look at the one is enough.
            return {}
        try:
            return (await self._storage.next_timers(names)).idle
        except InvalidRequest:
            # Rows of one of them cannot be read: the look at each tells which.
            return {}

    async def _scan(self, namespace: str, workers: int, backlog: Backlog | None) -> timedelta | None:
        if backlog is None:
            backlog = await self._storage.backlog(namespace, most=_MOST)
        else:
            # Nothing else here lets others run, and there may be thousands.
            await asyncio.sleep(0)
        waiting: dict[Kind, Waiting] = {"calls": backlog.calls, "timers": backlog.timers}
        is_idle = not any(each.tasks for each in waiting.values())
        is_quiet = is_idle and backlog.next_due is None and not backlog.paused
        if self._namespaces is None and not workers and is_quiet:
            # No worker serves it and nothing waits there; broken processes may still wait for a repair.
            self._forget({namespace})
            await self._look(namespace)
            return None
        if namespace not in self._published:
            self._published.add(namespace)
            self._looks_at.pop(namespace, None)
        metrics.LIVE_WORKERS.labels(namespace).set(workers)
        metrics.PAUSED.labels(namespace).set(backlog.paused)
        if backlog.paused is not (namespace in self._paused):
            await self._note_pause(namespace, backlog.paused)
        for kind, each in waiting.items():
            oldest_age_ms = each.age.total_seconds() * 1000
            metrics.publish_backlog(namespace, kind, waiting=each.tasks, oldest_age_ms=oldest_age_ms)
        if workers and not is_idle and not backlog.paused:
            await self._wake_workers(namespace, waiting)
        await self._look(namespace)
        return backlog.next_due

    async def _note_pause(self, namespace: str, paused: bool) -> None:
        if not paused:
            self._paused.discard(namespace)
            log.info("namespace resumed", extra={"namespace": namespace})
            return
        self._paused.add(namespace)
        for each in await self._storage.known_namespaces(namespace):
            log.warning("namespace paused", extra={"namespace": namespace, "reason": each.pause_reason})

    async def _look(self, namespace: str) -> None:
        """Publish what is too costly for every round, if the last time is long enough ago."""
        now = time.monotonic()
        if now < self._looks_at.get(namespace, 0.0):
            return
        self._looks_at[namespace] = now + _PAUSE
        is_published = namespace in self._published
        for each in await self._storage.status(namespace):
            self._looked_at.append(each)
            if each.broken or is_published:
                self._broken.add(namespace)
                metrics.BROKEN_PROCESSES.labels(namespace).set(each.broken)
            else:
                self._forget_broken({namespace})
            if is_published:
                metrics.publish_waiting(
                    namespace,
                    requests=each.waiting.requests,
                    age=each.waiting.age,
                    deepest=max((mailbox.requests for mailbox in each.waiting.deepest), default=0),
                    through_in=each.through_in,
                )

    async def stop(self) -> None:
        await super().stop()
        # A gauge that nobody updates any more must not keep its last value.
        self._forget(self._published)
        self._forget_broken(self._broken)

    def _forget(self, namespaces: AbstractSet[str]) -> None:
        for namespace in namespaces & self._published:
            metrics.forget_backlog(namespace)
            self._looks_at.pop(namespace, None)
            self._paused.discard(namespace)
        self._published -= namespaces

    def _forget_broken(self, namespaces: AbstractSet[str]) -> None:
        for namespace in namespaces & self._broken:
            metrics.BROKEN_PROCESSES.remove(namespace)
        self._broken -= namespaces

    async def _look_at_snapshots(self) -> None:
        now = time.monotonic()
        if now >= self._snapshots_at:
            self._snapshots_at = now + _PAUSE
            age = await self._storage.oldest_snapshot()
            metrics.OLDEST_SNAPSHOT.set(math.nan if age is None else age.total_seconds() * 1000)

    async def _wake_workers(self, namespace: str, waiting: dict[Kind, Waiting]) -> None:
        workers = await self._storage.live_workers(namespace, self._lease_age)
        random.shuffle(workers)
        # First the workers with free slots at their last heartbeat; the others may have some by now.
        workers.sort(key=lambda worker: worker.free_slots == 0)
        for kind, each in waiting.items():
            left = each.tasks
            for worker in workers:
                if left <= 0:
                    break
                self._wake(worker.worker_id, namespace, kind)
                left -= max(1, worker.free_slots)


def scanner_on(node: Node, options: EngineOptions, namespaces: Sequence[str] | None = None) -> Scanner:
    """Return a scanner of these namespaces, or of all."""
    return Scanner(
        node.storage,
        interval=options.scan_interval,
        lease_age=options.lease_age,
        wake=node.wake_worker,
        namespaces=namespaces,
    )
