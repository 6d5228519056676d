"""Reads: of one process, its history and its trace, and searches. In SQLAlchemy Core.

Rule: every read is a range of an index.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from functools import cache, partial
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Select,
    bindparam,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    text,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from progressor.acts import AuditVerb
from progressor.config import DEFAULT_SCHEMA
from progressor.inputs import LAST_ID, HistoryRange
from progressor.model import (
    Event,
    Life,
    Metadata,
    Snapshot,
    TaskStatus,
    TaskType,
)
from progressor.storage.postgres.retry import Retry
from progressor.storage.postgres.server_identity import Reach, outage_of
from progressor.storage.postgres.virtual_time import Clock
from progressor.storage.queries.connections import ReadConnections
from progressor.storage.queries.criteria import AnswerRow, TaskRow, TraceRange, Wanted
from progressor.storage.queries.pages import in_order, with_room
from progressor.storage.queries.searches import PROCESS, Search, number_of
from progressor.storage.queries.timers import shown_timers, timers_of
from progressor.storage.queries.traces import part_of, task_row, tasks_of
from progressor.storage.rows import snapshot_of
from progressor.storage.schema import events, kept_answers, processes, removed_processes, tasks
from progressor.storage.statements import Row
from progressor.storage.tables.operators import audit
from progressor.storage.values import ROOM

T = TypeVar("T")

_BEGIN = text("BEGIN")
# By the index on metadata, and by no other one, whatever is known of them.
_BY_BITMAP = text(
    "SELECT set_config('enable_seqscan', 'off', TRUE), set_config('enable_indexscan', 'off', TRUE), "
    "set_config('enable_indexonlyscan', 'off', TRUE)"
)
# Of one part of a history: to find where it has no room, PostgreSQL reads all that it may have.
_EVENTS_AT_ONCE = 5_000
_EVENT_VALUES = ("payload", "metadata")
_TASK_VALUES = ("args", "response", "error", "context")


class Reads:
    """The reads, on a small pool of their own, with the planner settings of the server."""

    def __init__(
        self,
        dsn: str,
        *,
        patience: timedelta,
        schema: str = DEFAULT_SCHEMA,
        session_state: bool = True,
        outage: Reach | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._connections = ReadConnections(dsn, schema=schema, session_state=session_state, clock=clock)
        self._patience = patience.total_seconds()
        self._outage = outage or outage_of(dsn)

    async def close(self) -> None:
        """Close idle connections; those in use are closed when their reads end."""
        await self._connections.close()

    def _read(self, read: Callable[[AsyncConnection], Awaitable[T]]) -> Coroutine[Any, Any, T]:
        tries = Retry("read", self._connections, self._outage, patience=self._patience)
        return tries.run(self._connections.reading, lambda connection, _again: read(connection))

    def _rows(self, statement: Select[Any], **values: Any) -> Coroutine[Any, Any, list[Row]]:
        return self._read(partial(_found, statement, **values))

    async def process(self, namespace: str, process_id: str) -> Snapshot | None:
        """Return one process, without its history; None if there is none."""
        rows = await self._rows(_process_of(), namespace=namespace, process_id=process_id)
        return snapshot_of(namespace, process_id, rows[0], shown_timers(rows[0])) if rows else None

    async def events(
        self, life: Life, wanted: HistoryRange, *, last: int, room: int | None = None
    ) -> tuple[Event, ...]:
        """Return a range of the history of this life, whose last event is `last`.

        With `room`, in bytes, return its first events that have room; one event alone may have more.
        """
        if wanted.direction == "forward":
            first, until, order = wanted.offset + 1, last, "event_id"
        else:
            first, until, order = 1, min(last, wanted.offset - 1) if wanted.offset else last, "-event_id"
        if first > until:
            return ()
        bounds = {} if wanted.limit is None else {"limit": wanted.limit}
        if room is not None:
            bounds["room"] = room
        statement = _history_of(order, *bounds)
        rows = await self._rows(statement, **life._asdict(), first=first, until=until, **bounds)
        return tuple(_event(row) for row in rows)

    async def history(self, life: Life, wanted: HistoryRange, *, last: int) -> tuple[Event, ...]:
        """Return a range of the history of this life, whose last event is `last`.

        Read it in bounded parts.
        """
        found: list[Event] = []
        while True:
            limit = min(_EVENTS_AT_ONCE, LAST_ID if wanted.limit is None else wanted.limit - len(found))
            offset = found[-1].event_id if found else wanted.offset
            if found and offset == (last if wanted.direction == "forward" else 1):
                return tuple(found)
            part = await self.events(
                life, HistoryRange(offset, limit, wanted.direction), last=last, room=ROOM
            )
            if not part:
                return tuple(found)
            found += part

    async def trace(self, of: TraceRange, *, room: int) -> tuple[list[TaskRow], bool]:
        """Return the tasks of a range in order, and whether it has more tasks than have room.

        `room` is in bytes for the tasks, and as much again for their events; one task alone may have more.
        """
        of, is_part = part_of(of)
        page = with_room(tasks_of(of), order=(of.order,), sized=_TASK_VALUES, room=room)
        statement = select(page).order_by(*in_order(page, (of.order,)))

        async def read(connection: AsyncConnection) -> tuple[list[Row], _Made]:
            found = await _found(statement, connection)
            # On the same connection, so on the same server: on another one the number may be another
            # process's.
            return found, await _events_by_task(found, of.order, room, connection) if found else ({}, None)

        found, (made, until) = await self._read(read)
        if not found:
            return [], False
        shown = found if until is None else found[:until]
        rows = [task_row(row, made.get(row["task_id"], ())) for row in shown]
        has_more = found[0]["found"] > len(rows) or (is_part and len(rows) in (of.limit, of.last))
        return rows if of.last is None else rows[::-1], has_more

    async def task(self, namespace: str, process_id: str, task_id: int) -> AnswerRow | None:
        """Return the outcome of a task, of a process or of a life of it that removed itself.

        None if there is no such task.
        """
        rows = await self._rows(task_statement(namespace, process_id, task_id))
        if not rows:
            return None
        kinds = {"status": TaskStatus(rows[0]["status"]), "task_type": TaskType(rows[0]["task_type"])}
        return AnswerRow(**rows[0] | kinds)

    async def was_removed(self, namespace: str, process_id: str) -> bool:
        """Return whether a process of this name is known to have been removed at most a day ago.

        One that removed itself is known for as long as its answers, a client's `remove` by the audit.
        """
        return bool(await self._rows(removal_statement(namespace, process_id)))

    async def search(
        self, wanted: Wanted, *, limit: int, cursor: str | None
    ) -> tuple[list[Snapshot], str | None]:
        """Return a page of processes, and the cursor of the next page, None at the end.

        A page ends early if its states have no room together.
        """
        search = Search(wanted)
        return search.page(await self._rows(search.statement(limit, cursor)), limit)

    async def among(
        self, wanted: Wanted, process_nos: Sequence[int], *, limit: int, cursor: str | None
    ) -> tuple[list[Snapshot], str | None]:
        """Return a page of those of these processes that match, as `search` does."""
        search = Search(wanted)
        return search.page(await self._rows(search.among(process_nos, limit, cursor)), limit)

    async def with_metadata(self, metadata: Metadata, *, most: int) -> list[int]:
        """Return the numbers of processes whose metadata contain these, in any order; at most so many."""
        statement = (
            select(processes.c.process_no)
            .where(processes.c.metadata.contains(metadata), processes.c.metadata != text("'{}'::jsonb"))
            .limit(most)
        )

        async def read(connection: AsyncConnection) -> list[int]:
            # Ends with the read.
            await connection.execute(_BEGIN)
            await connection.execute(_BY_BITMAP)
            return list((await connection.execute(statement)).scalars())

        return await self._read(read)


def task_statement(namespace: str, process_id: str, task_id: int) -> Select[Any]:
    """Select a task, of any life of this name that is still known."""
    lives = union_all(
        select(processes.c.process_no, processes.c.birth).where(
            processes.c.namespace_no == number_of(namespace), processes.c.process_id == process_id
        ),
        select(removed_processes.c.process_no, removed_processes.c.birth).where(
            removed_processes.c.namespace == namespace,
            removed_processes.c.process_id == process_id,
            not_(removed_processes.c.by_key),
        ),
        select(kept_answers.c.process_no, kept_answers.c.birth).where(
            kept_answers.c.task_id == task_id,
            kept_answers.c.namespace == namespace,
            kept_answers.c.process_id == process_id,
        ),
    ).subquery()
    columns = [tasks.c[name] for name in AnswerRow.__dataclass_fields__ if name != "birth"]
    return (
        select(*columns, lives.c.birth)
        .join_from(lives, tasks, tasks.c.process_no == lives.c.process_no)
        .where(tasks.c.task_id == task_id)
    )


def removal_statement(namespace: str, process_id: str) -> Select[Any]:
    """Select whether a process of this name was removed at most a day ago: no row if that is not known."""
    by_itself = exists().where(
        removed_processes.c.namespace == namespace, removed_processes.c.process_id == process_id
    )
    by_a_client = exists().where(
        audit.c.namespace == namespace,
        audit.c.process_id == process_id,
        audit.c.acted_at > func.now() - text("interval '1 day'"),
        audit.c.verb == AuditVerb.REMOVE.value,
    )
    return select(literal(True)).where(or_(by_itself, by_a_client))


_Made = tuple[dict[int, list[Event]], int | None]


async def _found(statement: Select[Any], connection: AsyncConnection, **values: Any) -> list[Row]:
    result = await connection.execute(statement, values)
    return [dict(row) for row in result.mappings()]


async def _events_by_task(
    found: Sequence[Row], order: str, room: int, connection: AsyncConnection
) -> _Made:
    """Return the events of these tasks, and the number of tasks whose events had room; None: of all."""
    ids = [row["task_id"] for row in found]
    of_tasks = _of(found[0]["process_no"]).where(events.c.task_id.between(min(ids), max(ids)))
    page = with_room(of_tasks, order=(order, "event_id"), sized=_EVENT_VALUES, room=room)
    rows = await _found(select(page).order_by(*in_order(page, (order, "event_id"))), connection)
    until = None
    if rows and rows[0]["found"] > len(rows):
        # The last task may have more events; the first is shown with all its events, however many.
        until = max(1, ids.index(rows[-1]["task_id"]))
        if until == 1:
            one = _of(found[0]["process_no"]).where(events.c.task_id == ids[0])
            rows = await _found(one.order_by(events.c.event_id), connection)
    made: dict[int, list[Event]] = {}
    for row in rows:
        made.setdefault(row["task_id"], []).append(_event(row))
    return made, until


# What is read most is built once: to build it takes longer than to read by it.
@cache
def _process_of() -> Select[Any]:
    """Select a process by the parameters `namespace` and `process_id`."""
    return select(*PROCESS, timers_of(processes)).where(
        processes.c.namespace_no == number_of(bindparam("namespace")),
        processes.c.process_id == bindparam("process_id"),
    )


@cache
def _history_of(order: str, *bounds: str) -> Select[Any]:
    """Select events of a life, `first` to `until`, within the bounds that are named: `limit`, `room`."""
    is_there = exists().where(
        processes.c.process_no == bindparam("process_no"),
        processes.c.birth.is_not_distinct_from(bindparam("birth")),
    )
    between = events.c.event_id.between(bindparam("first"), bindparam("until"))
    found = _of(bindparam("process_no")).where(between, is_there).order_by(*in_order(events, (order,)))
    if "limit" in bounds:
        # Those that are left: a retention may have deleted the first ones.
        found = found.limit(bindparam("limit", type_=BigInteger))
    if "room" not in bounds:
        return found
    page = with_room(found, order=(order,), sized=_EVENT_VALUES, room=bindparam("room", type_=BigInteger))
    return select(page).order_by(*in_order(page, (order,)))


def _of(process_no: int | BindParameter[int]) -> Select[Any]:
    columns = [events.c[name] for name in Event.__dataclass_fields__]
    return select(*columns).where(events.c.process_no == process_no)


def _event(row: Row) -> Event:
    return Event(**{name: row[name] for name in Event.__dataclass_fields__})
