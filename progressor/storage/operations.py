"""Storage: one public method is one verb and one transaction, over a list of items.

Rule: every transaction that changes anything of a process first locks the rows of its processes, in the
order of their numbers, in a statement of its own (`lock`); claims skip what is locked. Only requests know
a process by its name; everything else means one life of it, by its number. All inputs of an operation (ids,
leases, now) are fixed before its first try, so it can be repeated after a lost connection, a deadlock or
a serialization failure: it then finds its own earlier success.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import psycopg

from progressor.model import Disposition, Task
from progressor.storage.arrays import BigintArray
from progressor.storage.claims import Unread, accepted, claim, loaded, one_by_one, readable
from progressor.storage.connections import Connections
from progressor.storage.items import (
    ROOM,
    Claimed,
    Continue,
    Evidence,
    Import,
    LostLease,
    Prepared,
    Removed,
    Request,
    Saved,
    Standing,
    Step,
    TaskRef,
    Zombie,
)
from progressor.storage.reach import outage_of
from progressor.storage.refusals import BatchRefused, Unreadable
from progressor.storage.repetition import (
    Apart,
    Repetition,
    always,
    as_one,
    damage,
    never,
    one_of,
    one_or_one_of,
)
from progressor.storage.rows import (
    Row,
    claimed_of,
    ending_columns,
    grouped,
    import_columns,
    is_gone,
    life_columns,
    outcomes_of,
    prepared_of,
    release_columns,
    request_columns,
    standing_of,
    started_of,
    step_columns,
)
from progressor.storage.session import Session
from progressor.storage.zombies import bury, evidence_columns, find

T = TypeVar("T")
Attempt = Callable[[Session, bool], Awaitable[T]]

# Of removed processes, in one transaction.
_MOST_ROWS = 10_000


class Storage:
    """The operations of the engine on one database.

    `patience` bounds how long an operation is repeated while PostgreSQL cannot be reached; then it raises
    StorageUnavailable. What puts tasks into a worker's hands, or takes them out of them, is repeated for
    as long as it takes: a lost answer must not leave a task running that nobody runs.
    """

    def __init__(self, connections: Connections, *, patience: timedelta) -> None:
        self._connections = connections
        self._patience = patience.total_seconds()
        self.outage = outage_of(connections.dsn)
        self._unread = Unread()
        self._until_done = partial(self._run, patience=None, holds=always, apart=damage)

    async def _run(
        self,
        verb: str,
        attempt: Attempt[T],
        *,
        patience: float | None,
        holds: Callable[[], bool] = never,
        apart: Apart = as_one,
    ) -> T:
        tries = Repetition(verb, self.outage, patience=patience, holds=holds, apart=apart)
        while True:
            try:
                async with self._connections.acquire() as session:
                    result = await attempt(session, tries.again)
            except psycopg.Error as error:
                await tries.failed(error, role=self._connections.role)
            else:
                self.outage.worked()
                return result

    def _patience_for(self, requests: Sequence[Request]) -> float | None:
        # What may have been committed into this worker's hands must not be forgotten.
        holds = any(request.worker_id is not None for request in requests)
        return None if holds else self._patience

    async def prepare_init(
        self, requests: Sequence[Request], *, now: datetime | None = None
    ) -> list[Prepared]:
        """Create processes, each with its init task. One item per process in a batch."""

        # Over all tries: what was committed into a worker's hands is kept, whatever becomes of the others.
        found: dict[int, Prepared] = {}

        def holds() -> bool:
            return any(isinstance(result, Continue) for result in found.values())

        async def attempt(session: Session, _again: bool) -> list[Prepared]:
            left = [place for place in range(len(requests)) if place not in found]
            while left:
                params = {**request_columns([requests[place] for place in left]), "now": now}
                made, _ = await session.transact([("prepare_init", params), ("one_life", params)])
                for row in made:
                    place = left[row["ord"] - 1]
                    found[place] = started_of(requests[place], row)
                left = [place for place in left if place not in found]
                if left:
                    # The others were there before, or an earlier try of this operation made them.
                    others = [requests[place] for place in left]
                    (rows,) = await session.transact([("started", request_columns(others))])
                    told = zip(left, map(prepared_of, others, rows), rows, strict=True)
                    found.update((place, result) for place, result, row in told if not is_gone(row))
                    # What was there and is gone by now, answer and all, is in nobody's way any more.
                    left = [place for place in left if place not in found]
            return [found[place] for place in range(len(requests))]

        return await self._run(
            "prepare_init",
            attempt,
            patience=self._patience_for(requests),
            apart=one_of(len(requests)),
            holds=holds,
        )

    async def _prepare(
        self, requests: Sequence[Request], verbs: Sequence[str], now: datetime | None
    ) -> list[Prepared]:
        params = {**request_columns(requests), "now": now}

        async def attempt(session: Session, _again: bool) -> list[Prepared]:
            *_, rows = await session.transact([(verb, params) for verb in ("lock_by_name", *verbs)])
            return [prepared_of(request, row) for request, row in zip(requests, rows, strict=True)]

        apart = one_or_one_of(len(requests))
        try:
            return await self._run(verbs[0], attempt, patience=self._patience_for(requests), apart=apart)
        except (Unreadable, BatchRefused) as error:
            if len(requests) > 1:
                raise
            return [await accepted(self._until_done, requests[0], error, self._unread)]

    async def prepare_call(
        self, requests: Sequence[Request], *, now: datetime | None = None
    ) -> list[Prepared]:
        """Append calls and notifies to mailboxes; the live timer is blocked behind them."""
        return await self._prepare(requests, ("prepare_call",), now)

    async def prepare_repair(
        self, requests: Sequence[Request], *, now: datetime | None = None
    ) -> list[Prepared]:
        """Begin the repair of broken processes."""
        return await self._prepare(requests, ("prepare_repair", "prepared"), now)

    async def simple_repair(
        self, requests: Sequence[Request], *, now: datetime | None = None
    ) -> list[Prepared]:
        """Put broken processes back to running without a handler; the outcome is a final duplicate."""
        return await self._prepare(requests, ("simple_repair", "prepared"), now)

    async def save_result(
        self, steps: Sequence[Step], *, now: datetime | None = None, tried: bool = False
    ) -> list[Saved | LostLease]:
        """End steps and hand out their continuations; at most one item per process in a batch.

        `tried`: they were in a batch before, of which a try may have got through.
        """
        params = {**step_columns(steps), "now": now}
        statements: list[tuple[str, dict[str, Any]]] = []
        for verb, disposition in (
            ("cancel_waiting", Disposition.BREAK),
            ("remove", Disposition.REMOVE),
        ):
            ended = [step for step in steps if step.decision.disposition is disposition]
            if ended:
                statements.append((verb, {**ending_columns(ended), "now": now}))
        statements.append(("save_result", params))

        async def attempt(session: Session, again: bool) -> list[Saved | LostLease]:
            # The first try may still be under way, on a connection that only we lost. Behind the lock it is
            # there or it is not, and what is there the fence does not do again.
            before = [("lock", params)]
            if again or tried:
                before.append(("saved", params))
            results = await session.transact(before + statements)
            *told, rows = results[len(before) :]
            earlier = results[1] if again or tried else []
            return outcomes_of(steps, [*earlier, *rows], [row for rows in told for row in rows])

        return await self._run(
            "save_result", attempt, patience=None, apart=one_of(len(steps)), holds=always
        )

    async def _claim(self, verb: str, params: dict[str, Any], room: int) -> list[Claimed]:
        run = self._until_done
        try:
            rows = await run(verb, partial(claim, verb=verb, params=params))
        except Unreadable:
            # One row must not keep the others from being run: they are in our hands.
            rows = await readable(run, params, self._unread)
        except BatchRefused:
            rows = await one_by_one(run, verb, params, self._unread)
        if not any(row["is_large"] for row in rows):
            return [claimed_of(row) for row in rows]
        taken, left = await loaded(run, rows, room, self._unread)
        if left:
            await self._hand_back(left, patience=None)
        return taken

    async def search_calls(
        self,
        namespace: str,
        limit: int,
        *,
        worker_id: int,
        lease: int,
        room: int = ROOM,
        now: datetime | None = None,
    ) -> list[Claimed]:
        """Claim the oldest waiting mailbox tasks of processes on which nothing runs; `room` is in bytes."""
        params = {"worker_id": worker_id, "lease": lease, "now": now}
        return await self._claim("search_calls", {**params, "namespace": namespace, "limit": limit}, room)

    async def search_timers(
        self,
        namespace: str,
        limit: int,
        *,
        worker_id: int,
        lease: int,
        room: int = ROOM,
        now: datetime | None = None,
    ) -> list[Claimed]:
        """Claim timers that are due, earliest first."""
        params = {"worker_id": worker_id, "lease": lease, "now": now}
        return await self._claim("search_timers", {**params, "namespace": namespace, "limit": limit}, room)

    async def capture_task(
        self, ref: TaskRef, *, worker_id: int, lease: int, now: datetime | None = None
    ) -> Claimed | None:
        """Claim one task by id, if it is the next of its process and due."""
        params = {"worker_id": worker_id, "lease": lease, "now": now}
        params |= {"process_no": ref.process_no, "task_id": ref.task_id}
        found = await self._claim("capture_task", params, ROOM)
        return found[0] if found else None

    async def hand_back(self, tasks: Sequence[Task]) -> None:
        """Return claimed tasks that were not begun; they can be claimed again at once."""
        await self._hand_back(tasks, patience=self._patience)

    async def _hand_back(self, tasks: Sequence[Task], *, patience: float | None) -> None:
        params = {**release_columns(tasks), "attempts": 0, "now": None}

        async def attempt(session: Session, _again: bool) -> None:
            await session.transact([("lock", params), ("release", params)])

        await self._run("hand_back", attempt, patience=patience, holds=always)

    async def collect_zombies(
        self,
        evidence: Evidence,
        *,
        lease_age: timedelta,
        grace: timedelta,
        limit: int = 1000,
        now: datetime | None = None,
    ) -> list[Zombie]:
        """End the running tasks of workers that were silent for a lease, and those that ran too long.

        Too long is step_timeout + `grace`. All of it as of `evidence.at`, so a repetition that comes late
        finds no more than the first try would have. StorageUnavailable if a step could not be saved just
        now, because a table that it writes to is locked.
        """
        params = {**evidence_columns(evidence, lease_age), "grace": grace, "limit": limit}

        async def attempt(session: Session, _again: bool) -> list[Zombie]:
            async with session.transaction():
                found = await find(session, params)
                return await bury(session, found, now) if found else []

        return await self._run("collect_zombies", attempt, patience=self._patience)

    async def drop_leftovers(
        self,
        evidence: Evidence,
        *,
        lease_age: timedelta,
        limit: int = 1000,
        now: datetime | None = None,
    ) -> bool:
        """Forget dead workers, and what is left of up to `limit` removed processes; True if more may be."""
        params = {**evidence_columns(evidence, lease_age), "limit": limit, "rows": _MOST_ROWS, "now": now}

        async def attempt(session: Session, _again: bool) -> bool:
            verbs = ("drop_workers", "drop_rows", "drop_removed")
            _, (some,), (all_,) = await session.transact([(verb, params) for verb in verbs])
            return bool(some["rows"] == _MOST_ROWS or all_["processes"] == limit)

        return await self._run("drop_leftovers", attempt, patience=self._patience)

    async def remove(self, namespace: str, process_id: str) -> Removed:
        """End a process, whatever it does just now; its running step is fenced off.

        Of a large one rows are left, which nobody sees and `drop_leftovers` deletes.
        """
        found = await self.execute("find_process", namespace=namespace, process_id=process_id)
        if not found:
            return Removed(False, ())
        # From here on it is this life of the process that ends, however often that is tried.
        process_no = found[0]["process_no"]
        params = life_columns(process_no)

        async def attempt(session: Session, again: bool) -> Removed:
            locked, rows = await session.transact([("lock", params), ("remove", params)])
            told = grouped(rows, {process_no: namespace})
            # It may have ended since it was found. Tried again, perhaps by our own first try.
            return Removed(bool(locked) or again, told.get(process_no, ()))

        return await self._run("remove", attempt, patience=self._patience)

    async def put(self, item: Import, *, now: datetime | None = None) -> bool:
        """Import a process with its history and timer; False if the id is taken."""
        params = {**import_columns(item), "now": now}

        async def attempt(session: Session, again: bool) -> bool:
            async with session.transaction():
                (made,) = await session.transact([("put_process", params)])
                if made:
                    rest = [("put_events", {**params, **made[0]})]
                    if item.timer is not None:
                        rest.append(("put_timer", {**params, **made[0]}))
                    await session.transact(rest)
            if again and not made:
                # The id is taken, perhaps by our own first try.
                (made,) = await session.transact([("put_own", params)])
            return bool(made)

        return await self._run("put", attempt, patience=self._patience)

    async def replies(self, keys: Sequence[tuple[int, int]]) -> list[Standing]:
        """How these tasks stand, each named by the number of its process and its own.

        Of the first ones at least, and so many as have room: who wants to know of the others asks again.
        BatchRefused if one of them, perhaps, cannot be read.
        """
        params = {
            "process_no": BigintArray([process_no for process_no, _ in keys]),
            "task_id": BigintArray([task_id for _, task_id in keys]),
            "bytes": ROOM,
        }

        async def attempt(session: Session, _again: bool) -> list[Standing]:
            (rows,) = await session.transact([("replies", params)])
            return [standing_of(row) for row in rows]

        apart = one_or_one_of(len(keys))
        return await self._run("replies", attempt, patience=self._patience, apart=apart)

    async def execute(self, verb: str, **params: Any) -> list[Row]:
        """Run one of the small statements that concern no process (heartbeat, backlog, …)."""

        async def attempt(session: Session, _again: bool) -> list[Row]:
            (rows,) = await session.transact([(verb, params)])
            return rows

        return await self._run(verb, attempt, patience=self._patience)
