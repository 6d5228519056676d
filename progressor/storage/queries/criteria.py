"""Criteria of reads, and the plain rows that they find: values, without SQLAlchemy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from progressor.model import Event, Metadata, TaskStatus, TaskType
from progressor.storage.values import ROOM, TaskRef

MOST_ITEMS = 1000
"""The most processes, tasks or events of one page."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The processes that a search is for; None: any."""

    namespace: str | None = None
    namespaces: tuple[str, ...] | None = None
    """The namespaces that may be searched, whatever else is wanted."""
    status: str | None = None
    metadata: Metadata | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    timer: str | None = None
    """`none`, `overdue` or `held`; else the name of a timer, '' for the one without a name."""
    states: bool = True
    """True if states are read too."""
    room: int = ROOM
    """Bytes of states, metadata and errors on a page; one process alone may have more."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The namespaces that are searched; None: all."""
        if self.namespace is None:
            return self.namespaces
        fits = self.namespaces is None or self.namespace in self.namespaces
        return (self.namespace,) if fits else ()


class TraceRange(NamedTuple):
    """Tasks of one process between two ids: the first `limit` of them, or the `last` ones."""

    namespace: str
    process_id: str
    after: int = 0
    before: int | None = None
    limit: int | None = None
    last: int | None = None

    @property
    def order(self) -> str:
        """The order in which its pages are read."""
        return "task_id" if self.last is None else "-task_id"


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
    redone_by: int | None
    expires_at: datetime | None
    priority: int
    trace: str | None
    events: tuple[Event, ...]

    @property
    def size(self) -> int:
        """The size of its values and of its events' payloads, in bytes."""
        own = (self.args, self.response, self.context, *(event.payload for event in self.events))
        return sum(len(value or b"") for value in own)


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """The outcome of a task, and its identity."""

    process_no: int
    task_id: int
    birth: int | None
    status: TaskStatus
    response: bytes | None
    error: str | None
    idempotency_key: str | None
    request_hash: bytes | None
    reply_to: int | None
    task_type: TaskType
    name: str | None

    def ref(self, namespace: str) -> TaskRef:
        """Return the reference to the task, in this namespace."""
        return TaskRef(
            namespace,
            self.process_no,
            self.task_id,
            self.reply_to,
            self.birth,
            self.idempotency_key,
            self.request_hash,
        )
