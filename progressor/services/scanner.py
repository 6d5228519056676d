"""Watches the schedule: wakes workers when calls wait or timers fall due, and publishes what it sees.

Rule: it is the net behind every lost hint, and it changes nothing: any number of scanners may run. It
sleeps until the next timer is due, at most one interval, and wakes no more workers than there is work.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any

from progressor import metrics
from progressor.config import EngineOptions
from progressor.errors import InvalidRequest
from progressor.node.node import Node
from progressor.services.service import PeriodicService
from progressor.storage.operations import Storage
from progressor.storage.signals import Kind

Wake = Callable[[int, str, Kind], None]

# How far a round counts: enough for a gauge and for the spreading of wakes.
_MOST = 1000
# In seconds: how often the age of the oldest snapshot is looked at.
_SNAPSHOTS_PAUSE = 60.0
# Many scanners wait for the same timer: a little apart, the first one's wake is enough.
_SPREAD = 0.010


class Scanner(PeriodicService):
    """`wake(worker_id, namespace, kind)` sends one hint; `names` lists the namespaces to watch."""

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
        # Calls are looked at three times as often as timers are: each round looks at both, and
        # timers have their own alarm.
        super().__init__(interval / 3)
        self._storage = storage
        self._lease_age = lease_age
        self._wake = wake
        self._namespaces = namespaces
        self._published: set[str] = set()
        self._snapshots_at = 0.0

    async def run_once(self) -> timedelta | None:
        """Look at every namespace once; the time until the next timer is due."""
        served = await self._storage.execute("served_namespaces", lease_age=self._lease_age)
        workers: dict[str, int] = {row["name"]: row["workers"] for row in served}
        names = self._namespaces
        if names is None:
            names = [row["name"] for row in await self._storage.execute("namespace_names")]
        soonest: timedelta | None = None
        failure: InvalidRequest | None = None
        for name in names:
            try:
                due_in = await self._scan(name, workers.get(name, 0))
            except InvalidRequest as error:
                # What stands there cannot be read. The others are looked at all the same; then it is told.
                failure = failure or error
                continue
            if due_in is not None and (soonest is None or due_in < soonest):
                soonest = due_in
        if failure is not None:
            raise failure
        self._forget(self._published - set(names))
        await self._look_at_snapshots()
        if soonest is None:
            return None
        return soonest + timedelta(seconds=random.uniform(0, _SPREAD))  # noqa: S311 - jitter

    async def _scan(self, namespace: str, workers: int) -> timedelta | None:
        (seen,) = await self._storage.execute("backlog", namespace=namespace, most=_MOST, now=None)
        now: datetime = seen["now"]
        next_due: datetime | None = seen["next_due"]
        waiting: dict[Kind, int] = {
            "calls": seen["calls_waiting"],
            "timers": seen["timers_waiting"],
        }
        if self._namespaces is None and not workers and not any(waiting.values()) and next_due is None:
            # It was served once, and has nothing to do.
            self._forget({namespace})
            return None
        self._published.add(namespace)
        metrics.LIVE_WORKERS.labels(namespace).set(workers)
        for kind, count in waiting.items():
            oldest = seen[f"{kind}_oldest"]
            age = (now - oldest).total_seconds() * 1000 if oldest is not None else 0.0
            metrics.publish_backlog(namespace, kind, waiting=count, oldest_age_ms=max(0.0, age))
        if workers and any(waiting.values()):
            await self._wake_workers(namespace, waiting)
        return None if next_due is None else next_due - now

    async def stop(self) -> None:
        await super().stop()
        # What nobody looks at any more must not stand there as if somebody did.
        self._forget(self._published)

    def _forget(self, namespaces: AbstractSet[str]) -> None:
        for namespace in namespaces & self._published:
            metrics.forget_backlog(namespace)
        self._published -= namespaces

    async def _look_at_snapshots(self) -> None:
        now = time.monotonic()
        if now >= self._snapshots_at:
            self._snapshots_at = now + _SNAPSHOTS_PAUSE
            (seen,) = await self._storage.execute("oldest_snapshot")
            age_ms: float | None = seen["age_ms"]
            metrics.OLDEST_SNAPSHOT.set(math.nan if age_ms is None else age_ms)

    async def _wake_workers(self, namespace: str, waiting: dict[Kind, int]) -> None:
        workers: list[dict[str, Any]] = await self._storage.execute(
            "live_workers", namespace=namespace, lease_age=self._lease_age
        )
        random.shuffle(workers)
        # Those who said last that they have room first; the others may have room by now.
        workers.sort(key=lambda worker: worker["free_slots"] == 0)
        for kind, count in waiting.items():
            left = count
            for worker in workers:
                if left <= 0:
                    break
                self._wake(worker["worker_id"], namespace, kind)
                left -= max(1, worker["free_slots"])


def scanner_on(node: Node, options: EngineOptions, namespaces: Sequence[str] | None = None) -> Scanner:
    """A scanner of these namespaces, or of all."""
    return Scanner(
        node.storage,
        interval=options.scan_interval,
        lease_age=options.lease_age,
        wake=node.wake_worker,
        namespaces=namespaces,
    )
