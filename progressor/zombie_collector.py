"""Takes tasks from workers that died or froze, and from handlers that ran for too long.

Rule: a worker is dead when its heartbeat is too old, never because its work takes long; a task is lost
when it outlived its step_timeout and a grace. Any number of collectors may run.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from progressor import metrics
from progressor.model import TaskStatus, TaskType
from progressor.replies import Replies
from progressor.service import PeriodicService
from progressor.storage.items import Answer, Zombie
from progressor.storage.operations import Storage

log = logging.getLogger("progressor.zombie_collector")

_MOST = 1000
# Nobody is in a hurry for what is left over.
_LEFTOVERS_PAUSE = 60.0


class ZombieCollector(PeriodicService):
    """Collects every `interval` what is older than `lease_age`, or than step_timeout + `grace`."""

    name = "zombie collector"

    def __init__(
        self,
        storage: Storage,
        replies: Replies,
        *,
        interval: timedelta,
        lease_age: timedelta,
        grace: timedelta,
    ) -> None:
        super().__init__(interval)
        self._storage = storage
        self._replies = replies
        self._lease_age = lease_age
        self._grace = grace
        self._leftovers_at = 0.0
        self._longest_gap = max(2 * interval, lease_age / 2)
        # By PostgreSQL's clock: when the last round began, and since when there is one after the other.
        self._saw_at: datetime | None = None
        self._sees_since: datetime | None = None

    async def run_once(self) -> timedelta | None:
        """One round; the next one follows at once if there may be more."""
        began = time.monotonic()
        now = await self._storage.clock()
        if self._saw_at is not None and now - self._saw_at > self._longest_gap:
            # Perhaps nobody could reach PostgreSQL meanwhile, the workers as little as we.
            self._sees_since = now
        zombies = await self._storage.collect_zombies(
            lease_age=self._lease_age,
            grace=self._grace,
            limit=_MOST,
            sees_since=self._sees_since,
            until=now + self._longest_gap,
        )
        self._saw_at = now
        took = (time.monotonic() - began) * 1000
        for namespace in {zombie.task.namespace for zombie in zombies}:
            metrics.child(metrics.ZOMBIE_COLLECTION, namespace).observe(took)
        for zombie in zombies:
            self._report(zombie)
        if began >= self._leftovers_at:
            more = await self._storage.drop_leftovers(lease_age=self._lease_age)
            self._leftovers_at = began + (0.0 if more else _LEFTOVERS_PAUSE)
            # Where it runs apart, no pool shows them.
            for row in await self._storage.execute("served_namespaces", lease_age=self._lease_age):
                metrics.expect(row["name"])
        return timedelta(0) if len(zombies) == _MOST else None

    def _report(self, zombie: Zombie) -> None:
        ref = zombie.task
        metrics.ZOMBIES.labels(ref.namespace, zombie.verdict).inc()
        log.warning(
            "zombie detected",
            extra={
                "namespace": ref.namespace,
                "process_id": zombie.process_id,
                "task_id": ref.task_id,
                "task_type": zombie.task_type.value,
                "verdict": zombie.verdict,
            },
        )
        if zombie.verdict == "error":
            if zombie.task_type is not TaskType.REPAIR:
                # What a repair works on was broken before.
                metrics.BROKEN.labels(ref.namespace).inc()
            self._replies.tell(ref, Answer(TaskStatus.ERROR, error="zombie detected"))
            for other in zombie.cancelled:
                self._replies.tell(other, Answer(TaskStatus.CANCELLED, error="zombie detected"))
