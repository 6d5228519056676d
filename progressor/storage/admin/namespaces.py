"""Namespaces and workers, as operators change and see them.

Rule: every count has a bound and uses an index. A namespace is paused by its row alone: every statement
that puts a task into `running` looks at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from progressor.acts import Act, Deed
from progressor.model import shown_id
from progressor.monitoring import MOST_COUNTED, Failed, KnownNamespace, KnownWorker, NamespaceStatus
from progressor.storage.admin.audit import Audited, noting
from progressor.storage.admin.mailboxes import Mailboxes, waiting_params
from progressor.storage.admin.monitoring import backlog_of, backlog_params
from progressor.storage.postgres.arrays import bigints, texts
from progressor.storage.postgres.pipeline import Session
from progressor.storage.rows import RenewedRow, record_of
from progressor.storage.values import Standstill, TaskRef

_NEXT_TIMERS = 3
# Namespaces that are looked at at once: there are connections for others too.
_AT_ONCE = 4
# Broken processes, and timers, of a namespace that are looked at for failures.
MOST_FAILED = 5000
# Seconds of patience; short, because each try may hold up all writes to processes for a moment.
_RETIRING = 5.0


@dataclass(frozen=True, slots=True)
class Left:
    """The obstacles to retiring a namespace; `processes` are counted up to 1,001."""

    workers: int
    processes: int
    just_registered: bool

    @property
    def is_nothing(self) -> bool:
        return not (self.workers or self.processes or self.just_registered)


class TaskHold(NamedTuple):
    """The step that runs on the process of a task, which may be its own, or what the task waits for.

    `held_until`: a time, by the pause between two steps. `group_name`: room in this group, by its limit or
    its rate. `has_rate`: its namespace, or its group, has one.
    """

    running_id: int | None
    worker_id: int | None
    held_until: datetime | None
    group_name: str | None
    group_limit: int | None
    has_rate: bool


class Oversight(Mailboxes, Audited):
    """The operations of operators: rare, and none of them locks a process."""

    async def set_paused(
        self, namespace: str, paused: bool, reason: str | None = None, *, act: Act | None = None
    ) -> bool:
        """Pause a namespace, or let it go on; return whether it exists."""
        params = {"name": namespace, "paused": paused, "reason": reason}
        return await self._done("set_paused", params, act, Deed(namespace))

    async def set_group_limit(
        self, namespace: str, name: str, limit: int | None, *, act: Act | None = None
    ) -> bool:
        """Give a group a limit of its own, or None; return whether the namespace is known."""
        about = {"namespace": namespace, "group_key": name, "group_limit": limit}
        shown = "the limit of its namespace" if limit is None else f"limit {limit}"
        deed = Deed(namespace, subject=f"group {name}", detail=shown)
        return await self._done("set_group_limit", about, act, deed)

    async def known_namespaces(self, name: str | None = None) -> list[KnownNamespace]:
        """Return all namespaces by name, or the one of this name."""
        return [KnownNamespace(**row) for row in await self._rows("known_namespaces", name=name)]

    async def standstill(self, task: TaskRef) -> Standstill | None:
        """Return the reason why a task may have no answer yet; None if its namespace is not known."""
        params = {"process_no": task.process_no, "task_id": task.task_id, "most": MOST_COUNTED + 1}
        rows = await self._rows("standstill", namespace=task.namespace, **params)
        return Standstill(**rows[0]) if rows else None

    async def task_hold(self, task: TaskRef) -> TaskHold | None:
        """Return what holds a task that has no answer yet; None if its namespace is not known."""
        params = {"process_no": task.process_no, "task_id": task.task_id}
        rows = await self._rows("task_hold", namespace=task.namespace, **params)
        return TaskHold(**rows[0]) if rows else None

    async def status(self, namespace: str | None = None) -> list[NamespaceStatus]:
        """Return the status of all namespaces by name, or of the one of this name."""
        running = {row["name"]: row["steps"] for row in await self._rows("running_steps")}
        known = await self.known_namespaces(namespace)
        found: list[NamespaceStatus] = []
        for first in range(0, len(known), _AT_ONCE):
            some = known[first : first + _AT_ONCE]
            found += await asyncio.gather(*(self._status(each, running.get(each.name, 0)) for each in some))
        return found

    async def _status(self, known: KnownNamespace, running: int) -> NamespaceStatus:
        name, most = known.name, MOST_COUNTED + 1
        # In one round trip: a page may show a hundred namespaces.
        statements = {
            "backlog": backlog_params(name, most, None),
            "waiting": waiting_params(name, None),
            "namespace_figures": {"namespace": name, "most": most, "timers": _NEXT_TIMERS, "now": None},
        }
        rows = await self._transact("status", statements)
        backlog, (figures,) = backlog_of(rows["backlog"][0]), rows["namespace_figures"]
        waiting, steps = await self._waiting_of(rows["waiting"], None), known.steps
        if known.paused or not known.workers:
            waiting, steps = waiting.at_a_standstill(), 0
        return record_of(
            NamespaceStatus,
            asdict(known) | figures,
            running=running,
            waiting=waiting,
            through_in=waiting.through_in(steps),
            calls=backlog.calls,
            timers=backlog.timers,
            next_timers=tuple(figures["next_timers"]),
        )

    async def failed(
        self,
        namespaces: Sequence[str],
        *,
        since: datetime | None = None,
        ago: timedelta | None = None,
        most: int = MOST_FAILED,
        most_timers: int | None = None,
    ) -> list[Failed]:
        """Return broken processes and failed timers of namespaces, `since` a time or from `ago` on.

        Of each namespace look at `most` of both, or at another number of timers.
        """
        bounds = {"broken_processes": most, "failed_timers": most if most_timers is None else most_timers}
        statuses = {"broken_processes": "broken", "failed_timers": "retrying"}
        params = {"namespace": texts(namespaces), "since": since, "ago": ago}
        statements = {verb: {**params, "most": bound + 1} for verb, bound in bounds.items()}
        found = await self._transact("failed", statements)
        return [
            Failed(
                row["namespace"],
                status,
                row["process_id"],
                " ".join(filter(None, (row["task_type"] or "put", row["name"]))),
                row["error"] or "",
                row["at"],
                row["looked_at"] > bounds[verb],
            )
            for verb, status in statuses.items()
            for row in found[verb]
        ]

    async def beat(self, row: Mapping[str, Any]) -> RenewedRow:
        """Renew the row of a worker, as its heartbeat does."""
        namespaces, step_timeouts = texts(row["namespaces"]), bigints(row["step_timeouts"])
        arrays = {"namespaces": namespaces, "step_timeouts": step_timeouts}
        (found,) = await self._rows("heartbeat", **{**row, **arrays})
        return found["beats"], found["seen_at"], found["server"]

    async def all_workers(self) -> list[KnownWorker]:
        """Return all processes with a heartbeat, also silent ones that were not dropped yet."""
        return [
            record_of(
                KnownWorker, row, worker_id=shown_id(row["worker_id"]), namespaces=tuple(row["namespaces"])
            )
            for row in await self._rows("all_workers")
        ]

    async def retire(self, namespace: str, *, lease_age: timedelta, act: Act | None = None) -> Left | None:
        """Forget a namespace if nobody serves it and nothing is left in it; return what is left.

        None if there is no such namespace.
        """
        look = {"name": namespace, "lease_age": lease_age, "most": MOST_COUNTED + 1}

        async def attempt(session: Session, again: bool) -> Left | None:
            # First without a lock, so that a refusal holds up no writer.
            found = (await session.transact({"left_in_namespace": look}))["left_in_namespace"]
            if not found:
                # A try before this one may have retired it.
                return Left(0, 0, False) if again else None
            left = record_of(Left, found[0])
            if not left.is_nothing:
                return left
            async with session.transaction():
                results = await session.transact(
                    {
                        "retire_patience": {},
                        "lock_processes": {},
                        "left_in_namespace": look,
                        "retire": {"name": namespace, "lease_age": lease_age},
                    }
                )
                if results["retire"]:
                    await session.transact(noting(act, Deed(namespace)))
            if results["retire"] or not results["left_in_namespace"]:
                return Left(0, 0, False)
            left = record_of(Left, results["left_in_namespace"][0])
            # Nothing was left, and it was kept all the same: a worker registered it in between.
            return Left(0, 0, True) if left.is_nothing else left

        return await self._run("retire", attempt, patience=min(self._patience, _RETIRING))
