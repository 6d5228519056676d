"""Tasks that are held: the next of an idle process, which waits for a time, or for room in a group.

Rule: a held task is claimed by no ordinary claim. Any worker releases it once its time has come, and claims
it, behind the lock of its group, once there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from progressor.config import NO_RATES, Rates
from progressor.model import Task
from progressor.monitoring import MOST_COUNTED, KnownGroup
from progressor.storage.params import rate_params, release_columns, task_key_columns
from progressor.storage.postgres.arrays import bigints, columns_of, microseconds, texts
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.postgres.retry import always, damage
from progressor.storage.postgres.sqlstates import BatchRefused, Unreadable
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.rows import claimed_of, record_of
from progressor.storage.statements import Params, Row
from progressor.storage.steps.claims import Unread, claim, claim_apart, loaded
from progressor.storage.steps.fused_claim import FusedClaim
from progressor.storage.values import ROOM, Claimed, Kind

# Groups that one look reaches: beside so many full ones a claim takes a third of a millisecond more.
_GROUPS = 32


class GroupsWithRoom(NamedTuple):
    """The groups that have room for tasks that wait; `last` is where to look on, None at the end of all.

    `rest` is the time until the first of those goes on that their rate lets rest; None if there is none.
    """

    group_nos: Sequence[int]
    last: int | None
    rest: timedelta | None = None


class RunningHere(NamedTuple):
    """A task that PostgreSQL has in the hands of a worker."""

    namespace: str
    process_id: str
    process_no: int
    task_id: int
    lease: int


class HeldTasks(Transactions):
    """The operations on held tasks, and what all claims share."""

    def __init__(self, connections: SessionPool, *, patience: timedelta) -> None:
        super().__init__(connections, patience=patience)
        self._unread = Unread()
        self._until_done = partial(self._transact, patience=None, holds=always, apart=damage)

    async def _claim(
        self, verb: str, params: dict[str, Any], room: int, *, tried: bool = False
    ) -> list[Claimed]:
        try:
            claiming = partial(claim, verb=verb, params=params, tried=tried)
            rows = await self._run(verb, claiming, patience=None, holds=always, apart=damage)
        except (Unreadable, BatchRefused):
            # One row must not keep the other tasks, which may be claimed too, from being run.
            rows = await claim_apart(self._until_done, verb, params, self._unread)
        return await self.with_values(rows, room)

    async def search(
        self,
        kind: Kind,
        namespace: str,
        limit: int,
        *,
        worker_id: int,
        lease: int,
        room: int = ROOM,
        left: Sequence[str] = (),
        rates: Rates = NO_RATES,
        now: datetime | None = None,
        tried: bool = False,
    ) -> list[Claimed]:
        """Claim the oldest waiting requests, or the timers that are due, earliest first.

        `room` is in bytes. `left` are the functions that are left to other workers. With `tried` an earlier
        claim under this lease may have been committed.
        """
        params = {
            "namespace": namespace,
            "limit": limit,
            "worker_id": worker_id,
            "lease": lease,
            "now": now,
        }
        params |= {"left": texts(left), **rate_params(rates)}
        return await self._claim(_searching(kind, served=bool(left)), params, room, tried=tried)

    async def with_values(self, rows: Sequence[Row], room: int) -> list[Claimed]:
        """Return claimed tasks with their large values; hand back those for which there is no room."""
        if not any(row["is_large"] for row in rows):
            return [claimed_of(row) for row in rows]
        taken, left = await loaded(self._until_done, rows, room, self._unread)
        if left:
            await self.hand_back(left)
        return taken

    def fused_claim(
        self,
        namespace: str,
        kind: Kind,
        limit: int,
        *,
        worker_id: int,
        lease: int,
        now: datetime | None = None,
    ) -> AbstractAsyncContextManager[FusedClaim]:
        """Open a transaction that claims as `search` does, and saves what ends at once.

        Doubtful if PostgreSQL or the connection failed: a claim under the same lease, with `tried`, and
        `saved_before` find what was committed.
        """
        params = {"namespace": namespace, "limit": limit, "worker_id": worker_id, "lease": lease}
        params |= {"left": texts(()), **rate_params(NO_RATES)}
        return self._flight(lambda session: FusedClaim(session, _searching(kind), params, now))

    async def hand_back(self, tasks: Sequence[Task]) -> None:
        """Put claimed tasks that were not begun back to the schedule; they can be claimed again at once."""
        await self._release(release_columns(tasks), lost=None)

    async def hand_back_unsaved(
        self, task: Task, pause: timedelta, reason: str, *, now: datetime | None = None
    ) -> None:
        """Put the task of a step that began, and was not saved, back to the schedule, for after `pause`."""
        later = {"delay": bigints([microseconds(pause)]), "detail": texts([reason])}
        await self._release({**release_columns([task]), **later}, lost="transaction", now=now)

    async def running_here(self, worker_id: int) -> list[RunningHere]:
        """Return the tasks that PostgreSQL has in the hands of a worker."""
        return [RunningHere(**row) for row in await self._rows("running_here", worker_id=worker_id)]

    async def hand_back_lost(self, tasks: Sequence[RunningHere], reason: str) -> None:
        """Put the tasks of steps whose saves are lost back to the schedule; they can be claimed at once."""
        nothing = bigints([None] * len(tasks))
        columns = {
            **columns_of(bigints, tasks, "process_no", "task_id", "lease"),
            "delay": nothing,
            "detail": texts([reason] * len(tasks)),
        }
        await self._release(columns, lost="transaction")

    async def _release(self, tasks: Params, *, lost: str | None, now: datetime | None = None) -> None:
        params = {**tasks, "lost": lost, "now": now}
        await self._transact("hand_back", {"lock": params, "release": params}, patience=None, holds=always)

    async def ripen(self, namespace: str, *, limit: int, now: datetime | None = None) -> int:
        """Let tasks be claimed that were held until a time which has come; return how many."""
        return len(await self._rows("ripen", namespace=namespace, limit=limit, now=now))

    async def queue_timers(self, namespace: str, *, limit: int, now: datetime | None = None) -> int:
        """Have due timers of groups wait for room there; return how many."""
        return len(await self._rows("queue_timers", namespace=namespace, limit=limit, now=now))

    async def holds(self, namespace: str) -> bool:
        """Return whether any task of a namespace is held."""
        (row,) = await self._rows("holds", namespace=namespace)
        return bool(row["holds"])

    async def groups_with_room(
        self, namespace: str, *, after: int = 0, rates: Rates = NO_RATES, now: datetime | None = None
    ) -> GroupsWithRoom:
        """Look at the next groups behind `after` in which tasks wait for room."""
        about = {"namespace": namespace, "after": after, "groups": _GROUPS}
        if rates.group is None:
            rows = await self._rows("groups_with_room", **about)
        else:
            rows = await self._rows("groups_with_room_rated", **about, **rate_params(rates), now=now)
        return _groups_of(rows, rows[-1]["group_no"] if len(rows) == _GROUPS else None)

    async def rests(self, namespace: str, *, now: datetime | None = None) -> timedelta | None:
        """Return the time until the rate of a namespace lets its next step begin; None: it may now."""
        rows = await self._rows("rests", namespace=namespace, now=now)
        return rows[0]["rest"] if rows else None

    async def room_in_groups(
        self,
        namespace: str,
        groups: Sequence[int],
        *,
        rates: Rates = NO_RATES,
        now: datetime | None = None,
    ) -> GroupsWithRoom:
        """Look which of these groups have room for tasks that wait there."""
        about = {"namespace": namespace, "group_no": bigints(groups)}
        if rates.group is None:
            return _groups_of(await self._rows("room_in_groups", **about))
        return _groups_of(await self._rows("room_in_groups_rated", **about, **rate_params(rates), now=now))

    async def search_groups(
        self,
        namespace: str,
        limit: int,
        *,
        groups: Sequence[int],
        worker_id: int,
        lease: int,
        room: int = ROOM,
        rates: Rates = NO_RATES,
        now: datetime | None = None,
    ) -> list[Claimed]:
        """Claim the tasks that wait longest in each of these groups, as many as it has room for."""
        params = {"namespace": namespace, "limit": limit, "group_no": bigints(groups), "now": now}
        # An init that is claimed here has its group.
        params |= {"worker_id": worker_id, "lease": lease, **rate_params(rates._replace(enters=False))}
        return await self._claim("search_groups", params, room)

    async def groups(
        self, namespace: str, *, after: str = "", limit: int = 100, now: datetime | None = None
    ) -> list[KnownGroup]:
        """Return the next groups of a namespace behind `after`, by their names."""
        bounds = {"after": after, "limit": limit, "most": MOST_COUNTED + 1}
        rows = await self._rows("groups", namespace=namespace, now=now, **bounds)
        return [
            record_of(KnownGroup, row, limit=row["group_limit"], age=row["age"] or timedelta())
            for row in rows
        ]

    async def enter_group(self, task: Task, group_key: str) -> int | None:
        """Give a process its group, before its init begins; the init then waits for room there.

        Return the number of the group, None if the lease was lost.
        """
        params = {**task_key_columns([task]), "namespace": task.namespace, "group_key": group_key}
        statements = dict.fromkeys(("lock", "make_groups", "enter_group"), params)
        results = await self._transact("enter_group", statements, patience=None, holds=always)
        entered: int | None = next((row["group_no"] for row in results["enter_group"]), None)
        return entered


def _searching(kind: Kind, *, served: bool = False) -> str:
    """Return the statement that claims tasks of a kind; `served`: not those of functions that are left."""
    return f"search_served_{kind}" if served else f"search_{kind}"


def _groups_of(rows: Sequence[Row], last: int | None = None) -> GroupsWithRoom:
    """Return the groups of a look that have room, and how long the first of those rests that have none."""
    rests = [row["rest"] for row in rows if row.get("rest") is not None]
    with_room = [row["group_no"] for row in rows if row.get("has_room", True)]
    return GroupsWithRoom(with_room, last, min(rests, default=None))
