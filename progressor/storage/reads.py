"""What is only read: one process, its history, its trace, and searches. In SQLAlchemy Core.

Rule: every read is a range of an index. Histories are gapless, so a limit is arithmetic, never counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

import psycopg
from psycopg import pq
from sqlalchemy import NullPool, Select, and_, select, true, union_all
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from progressor.config import DEFAULT_SCHEMA
from progressor.model import (
    Event,
    HistoryRange,
    Snapshot,
    TaskStatus,
    TaskType,
    shown_id,
)
from progressor.outages import Outage
from progressor.storage import opening
from progressor.storage.connections import Pool
from progressor.storage.reach import outage_of
from progressor.storage.repetition import Repetition
from progressor.storage.rows import snapshot_of
from progressor.storage.schema import events, namespaces, processes, removed_processes, schedule, tasks
from progressor.storage.searches import PROCESS, Wanted, number_of, shown_timer, timer_of
from progressor.storage.statements import Row

T = TypeVar("T")

_MOST_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task of a process's trace, as stored, with the events that it made."""

    task_id: int
    task_type: TaskType
    status: TaskStatus
    name: str | None
    args: bytes | None
    response: bytes | None
    error: str | None
    idempotency_key: str | None
    context: bytes | None
    scheduled_time: datetime
    running_time: datetime | None
    finished_time: datetime | None
    attempts_count: int
    last_retry_interval: timedelta | None
    worker_id: str | None
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """How a task stands, and whose it is."""

    process_no: int
    status: TaskStatus
    response: bytes | None
    error: str | None
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """What the workers that serve a namespace wrote of it."""

    name: str
    paused: bool
    options: Mapping[str, Any]
    schemas: Mapping[str, Any]


_IS_BROKEN = (
    select(processes.c.status == "error")
    .where(processes.c.process_no == tasks.c.process_no)
    .scalar_subquery()
    .label("is_broken")
)


class Reads:
    """Reads on a small pool of their own, with the planner as the server has it set."""

    def __init__(
        self,
        dsn: str,
        *,
        patience: timedelta,
        schema: str = DEFAULT_SCHEMA,
        session_state: bool = True,
        outage: Outage | None = None,
    ) -> None:
        self._connections = _Connections(dsn, patience=patience, schema=schema, session_state=session_state)
        self._patience = patience.total_seconds()
        self._outage = outage or outage_of(dsn)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when its user is done."""
        await self._connections.close()

    async def _read(self, read: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        async def attempt(connection: AsyncConnection, _again: bool) -> T:
            return await read(connection)

        tries = Repetition("read", self._connections, self._outage, patience=self._patience)
        return await tries.run(self._connections.reading, attempt)

    async def _rows(self, statement: Select[Any]) -> list[Row]:
        async def read(connection: AsyncConnection) -> list[Row]:
            result = await connection.execute(statement)
            return [dict(row) for row in result.mappings()]

        return await self._read(read)

    async def process(self, namespace: str, process_id: str) -> Snapshot | None:
        """One process, without its history."""
        timer = timer_of(processes)
        rows = await self._rows(
            select(*PROCESS, timer)
            .select_from(processes.outerjoin(timer, true()))
            .where(processes.c.namespace_no == number_of(namespace), processes.c.process_id == process_id)
        )
        return snapshot_of(namespace, process_id, rows[0], shown_timer(rows[0])) if rows else None

    async def events(self, process_no: int, wanted: HistoryRange, *, last: int) -> tuple[Event, ...]:
        """A range of a history whose last event is `last`."""
        most = last if wanted.limit is None else wanted.limit
        if wanted.direction == "forward":
            first = wanted.offset + 1
            until = min(last, wanted.offset + most)
            order = events.c.event_id.asc()
        else:
            until = min(last, wanted.offset - 1) if wanted.offset else last
            first = max(1, until - most + 1)
            order = events.c.event_id.desc()
        if first > until:
            return ()
        rows = await self._rows(
            _of(process_no).where(events.c.event_id.between(first, until)).order_by(order)
        )
        return tuple(_event(row) for row in rows)

    async def trace(
        self, namespace: str, process_id: str, *, after: int, limit: int | None, last: int | None
    ) -> list[TaskRow]:
        """The tasks of a process in order, behind id `after`: the first `limit`, or the `last` ones."""
        order = tasks.c.task_id.asc() if last is None else tasks.c.task_id.desc()
        process_no = (
            select(processes.c.process_no)
            .where(processes.c.namespace_no == number_of(namespace), processes.c.process_id == process_id)
            .scalar_subquery()
        )
        columns = [tasks.c[name] for name in TaskRow.__dataclass_fields__ if name != "events"]
        found = await self._rows(
            select(*columns, tasks.c.process_no, schedule.c.claimable, _IS_BROKEN)
            .join_from(
                tasks,
                schedule,
                and_(schedule.c.process_no == tasks.c.process_no, schedule.c.task_id == tasks.c.task_id),
                isouter=True,
            )
            .where(tasks.c.process_no == process_no, tasks.c.task_id > after)
            .order_by(order)
            .limit(limit if last is None else last)
        )
        if not found:
            return []
        if last is not None:
            found.reverse()
        made = await self._events_by_task(found)
        return [_task_row(row, made.get(row["task_id"], ())) for row in found]

    async def task(self, namespace: str, process_id: str, task_id: int) -> AnswerRow | None:
        """How a task stands, of a process or of a life of it that has removed itself."""
        rows = await self._rows(task_statement(namespace, process_id, task_id))
        return AnswerRow(**rows[0] | {"status": TaskStatus(rows[0]["status"])}) if rows else None

    async def _events_by_task(self, found: Sequence[Row]) -> dict[int, list[Event]]:
        rows = await self._rows(
            _of(found[0]["process_no"])
            .where(events.c.task_id.between(found[0]["task_id"], found[-1]["task_id"]))
            .order_by(events.c.event_id)
        )
        made: dict[int, list[Event]] = {}
        for row in rows:
            made.setdefault(row["task_id"], []).append(_event(row))
        return made

    async def namespace(self, name: str) -> NamespaceRow | None:
        """What is known of a namespace."""
        columns = [namespaces.c[field] for field in NamespaceRow.__dataclass_fields__]
        rows = await self._rows(select(*columns).where(namespaces.c.name == name))
        return NamespaceRow(**rows[0]) if rows else None

    async def search(
        self, wanted: Wanted, *, limit: int, cursor: str | None
    ) -> tuple[list[Snapshot], str | None]:
        """A page of processes; and the cursor of the next one, None at the end.

        A page ends early where the states on it have no room together.
        """
        return wanted.page(await self._rows(wanted.statement(limit, cursor)), limit)


class _Reader:
    """A connection as SQLAlchemy has it, over one of the driver's that is closed by us alone."""

    def __init__(self, driver: psycopg.AsyncConnection[Any], connection: AsyncConnection) -> None:
        self.driver = driver
        self.connection = connection
        # Nothing is under way: false from the first statement of a read to its last.
        self.is_idle = True

    @property
    def is_lost(self) -> bool:
        return self.driver.pgconn.status != pq.ConnStatus.OK

    async def close(self) -> None:
        # The driver's first, which waits for nothing: SQLAlchemy asks the server on its way.
        await self.driver.close()
        await self.connection.invalidate()
        await self.connection.close()


_DRIVER: ContextVar[psycopg.AsyncConnection[Any]] = ContextVar("_DRIVER")


async def _opened() -> psycopg.AsyncConnection[Any]:
    return _DRIVER.get()


class _Connections(Pool[_Reader]):
    """The connections of Reads. SQLAlchemy keeps none: it would lose one on which it was cancelled."""

    def __init__(self, dsn: str, *, patience: timedelta, schema: str, session_state: bool) -> None:
        super().__init__(limit=_MOST_CONNECTIONS)
        self._engine = create_async_engine(
            "postgresql+psycopg://",
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            poolclass=NullPool,
            execution_options={"schema_translate_map": {DEFAULT_SCHEMA: schema}},
            async_creator=_opened,
        )
        self._dsn = dsn
        self._patience = patience.total_seconds()
        self._keeps_state = session_state

    async def _open(self) -> _Reader:
        driver = await opening.connect(self._dsn, "progressor reads", keeps_state=self._keeps_state)
        self.role = driver.info.user
        token = _DRIVER.set(driver)
        try:
            with _as_the_driver_says():
                # The first time it asks the server what it is.
                return _Reader(driver, await self._engine.connect())
        except BaseException:
            await driver.close()
            raise
        finally:
            _DRIVER.reset(token)

    async def _place(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await super()._place()
        except TimeoutError:
            raise psycopg.OperationalError("all connections for reads are in use") from None

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection for one read."""
        async with self.acquire() as reader:
            reader.is_idle = False
            with _as_the_driver_says():
                if not self._keeps_state:
                    # It states what it relies on, and ends with the read.
                    await reader.driver.execute(opening.BEGIN)
                    await reader.driver.execute(opening.SETTINGS, opening.BOUNDED_TRANSACTION)
                yield reader.connection
                await reader.connection.rollback()
            reader.is_idle = True


@contextmanager
def _as_the_driver_says() -> Iterator[None]:
    """Errors as psycopg has them: without SQL."""
    try:
        yield
    except DBAPIError as error:
        raise cast("psycopg.Error", error.orig) from None


def task_statement(namespace: str, process_id: str, task_id: int) -> Select[Any]:
    """A task of any life of this name that is known yet."""
    lives = union_all(
        select(processes.c.process_no).where(
            processes.c.namespace_no == number_of(namespace), processes.c.process_id == process_id
        ),
        select(removed_processes.c.process_no).where(
            removed_processes.c.namespace == namespace, removed_processes.c.process_id == process_id
        ),
    ).subquery()
    columns = [tasks.c[name] for name in AnswerRow.__dataclass_fields__]
    return (
        select(*columns)
        .join_from(lives, tasks, tasks.c.process_no == lives.c.process_no)
        .where(tasks.c.task_id == task_id)
    )


def _of(process_no: int) -> Select[Any]:
    columns = [events.c[name] for name in Event.__dataclass_fields__]
    return select(*columns).where(events.c.process_no == process_no)


def _event(row: Row) -> Event:
    return Event(**row)


def _task_row(row: Row, made: Sequence[Event]) -> TaskRow:
    fields = {name: row[name] for name in TaskRow.__dataclass_fields__ if name != "events"}
    fields["task_type"] = TaskType(row["task_type"])
    fields["status"] = TaskStatus(row["status"])
    fields["attempts_count"] = row["attempts_count"] or 0
    if fields["task_type"].is_timer and row["claimable"] is False:
        fields["status"] = TaskStatus.HELD if row["is_broken"] else TaskStatus.BLOCKED
    if row["worker_id"] is not None:
        fields["worker_id"] = shown_id(row["worker_id"])
    return TaskRow(**fields, events=tuple(made))
