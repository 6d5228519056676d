"""What is only read: one process, its history, its trace, and searches. In SQLAlchemy Core.

Rule: every read is a range of an index. Histories are gapless, so an offset is arithmetic, never counted.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, and_, func, literal, select, text, tuple_
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from progressor.config import check_moment, check_namespace, check_text
from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.model import Event, HistoryRange, Metadata, Snapshot, TaskStatus, TaskType
from progressor.storage.dsn import parsed
from progressor.storage.rows import Row, snapshot_of
from progressor.storage.schema import events, namespaces, processes, schedule, tasks

T = TypeVar("T")

MOST_ITEMS = 1000


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task of a process's trace, as stored, with the events that it made."""

    task_id: int
    task_type: TaskType
    status: TaskStatus
    metadata: Metadata
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
class NamespaceRow:
    """What the workers that serve a namespace wrote of it."""

    name: str
    paused: bool
    options: Mapping[str, Any]
    schemas: Mapping[str, Any]


_PROCESS = (
    processes.c.namespace,
    processes.c.process_id,
    processes.c.status,
    processes.c.previous_status,
    processes.c.status_changed_at,
    processes.c.created_at,
    processes.c.detail,
    processes.c.aux_state,
    processes.c.metadata.label("process_metadata"),
    processes.c.corrupted_by,
    processes.c.last_event_id,
)


class Reads:
    """Reads on a small pool of their own, with the planner as the server has it set."""

    def __init__(self, dsn: str, *, patience: timedelta, session_state: bool = True) -> None:
        self._engine = create_async_engine(
            "postgresql+psycopg://",
            isolation_level="AUTOCOMMIT",
            pool_size=4,
            max_overflow=0,
            pool_timeout=patience.total_seconds(),
            connect_args={
                **parsed(dsn),
                "application_name": "progressor reads",
                "prepare_threshold": 5 if session_state else None,
            },
        )
        self._patience = patience.total_seconds()

    async def close(self) -> None:
        await self._engine.dispose()

    async def _read(self, read: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        started, pause = loop.time(), 0.02
        while True:
            try:
                async with self._engine.connect() as connection:
                    return await read(connection)
            except (DBAPIError, PoolTimeout) as error:
                if isinstance(error, ProgrammingError | DataError | IntegrityError):
                    raise
                if loop.time() - started >= self._patience:
                    raise StorageUnavailable(
                        f"PostgreSQL did not answer for {self._patience:g} s: {type(error).__name__}"
                    ) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _rows(self, statement: Select[Any]) -> list[Row]:
        async def read(connection: AsyncConnection) -> list[Row]:
            result = await connection.execute(statement)
            return [dict(row) for row in result.mappings()]

        return await self._read(read)

    async def process(self, namespace: str, process_id: str) -> Snapshot | None:
        """One process, without its history."""
        rows = await self._rows(
            select(*_PROCESS).where(
                processes.c.namespace == namespace, processes.c.process_id == process_id
            )
        )
        return snapshot_of(namespace, process_id, rows[0]) if rows else None

    async def events(
        self, namespace: str, process_id: str, wanted: HistoryRange, *, last: int
    ) -> tuple[Event, ...]:
        """A range of a history whose last event is `last`."""
        if wanted.direction == "forward":
            first = wanted.offset + 1
            until = last if wanted.limit is None else min(last, wanted.offset + wanted.limit)
            order = events.c.event_id.asc()
        else:
            until = last - wanted.offset
            first = 1 if wanted.limit is None else until - wanted.limit + 1
            order = events.c.event_id.desc()
        if first > until:
            return ()
        rows = await self._rows(
            _of(namespace, process_id).where(events.c.event_id.between(first, until)).order_by(order)
        )
        return tuple(_event(row) for row in rows)

    async def trace(
        self, namespace: str, process_id: str, *, after: int, limit: int | None
    ) -> list[TaskRow]:
        """The tasks of a process in order, those behind task id `after`."""
        columns = [
            tasks.c[name] for name in TaskRow.__dataclass_fields__ if name not in ("status", "events")
        ]
        found = await self._rows(
            select(*columns, func.coalesce(schedule.c.status, tasks.c.status).label("status"))
            .join_from(
                tasks,
                schedule,
                and_(
                    schedule.c.namespace == tasks.c.namespace,
                    schedule.c.process_id == tasks.c.process_id,
                    schedule.c.task_id == tasks.c.task_id,
                ),
                isouter=True,
            )
            .where(
                tasks.c.namespace == namespace,
                tasks.c.process_id == process_id,
                tasks.c.task_id > after,
                ~tasks.c.orphaned,
            )
            .order_by(tasks.c.task_id)
            .limit(limit)
        )
        made = await self._events_by_task(namespace, process_id, [r["task_id"] for r in found])
        return [
            TaskRow(
                **{
                    **row,
                    "task_type": TaskType(row["task_type"]),
                    "status": TaskStatus(row["status"]),
                    "events": tuple(made.get(row["task_id"], ())),
                }
            )
            for row in found
        ]

    async def _events_by_task(
        self, namespace: str, process_id: str, task_ids: Sequence[int]
    ) -> dict[int, list[Event]]:
        if not task_ids:
            return {}
        rows = await self._rows(
            _of(namespace, process_id)
            .where(events.c.task_id.between(task_ids[0], task_ids[-1]))
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
        self,
        *,
        namespace: str | None,
        status: str | None,
        metadata: Metadata | None,
        created_after: datetime | None,
        created_before: datetime | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[list[Snapshot], str | None]:
        """Processes by namespace, then creation; and the cursor of the next page, None at the end."""
        key = tuple_(processes.c.namespace, processes.c.created_at, processes.c.process_id)
        # Each condition with the predicate of the index that serves it.
        wanted: list[ColumnElement[bool]] = [processes.c.process_id != literal("", literal_execute=True)]
        if namespace is not None:
            wanted.append(processes.c.namespace == namespace)
        if status is not None:
            wanted.append(processes.c.status == status)
            if status == "error":
                wanted.append(processes.c.detail.is_not(None))
        if metadata:
            wanted.append(processes.c.metadata.contains(metadata))
            wanted.append(processes.c.metadata != text("'{}'::jsonb"))
        if created_after is not None:
            wanted.append(processes.c.created_at >= created_after)
        if created_before is not None:
            wanted.append(processes.c.created_at < created_before)
        if cursor is not None:
            wanted.append(key > tuple_(*_read_cursor(cursor)))
        rows = await self._rows(
            select(*_PROCESS)
            .where(*wanted)
            .order_by(processes.c.namespace, processes.c.created_at, processes.c.process_id)
            .limit(limit + 1)
        )
        page = [snapshot_of(row["namespace"], row["process_id"], row) for row in rows[:limit]]
        more = len(rows) > limit
        return page, _write_cursor(page[-1]) if more else None


def _of(namespace: str, process_id: str) -> Select[Any]:
    columns = [events.c[name] for name in Event.__dataclass_fields__]
    return select(*columns).where(events.c.namespace == namespace, events.c.process_id == process_id)


def _event(row: Row) -> Event:
    return Event(**row)


def _write_cursor(last: Snapshot) -> str:
    key = [last.namespace, last.created_at.isoformat(), last.process_id]
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _read_cursor(cursor: str) -> tuple[str, datetime, str]:
    try:
        namespace, created_at, process_id = json.loads(base64.urlsafe_b64decode(cursor))
        return (
            check_namespace(namespace),
            check_moment("created_at", datetime.fromisoformat(created_at)),
            check_text("process_id", process_id),
        )
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest("cursor is not one that search gave out", field="cursor") from None
