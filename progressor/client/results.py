"""Results of a client: receipts, answers or the errors that stand for them, traces, pages, health."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, assert_never

from progressor.codecs.codec import Owner, Owning
from progressor.errors import (
    Expired,
    HandlerFailed,
    IdempotencyConflict,
    InvalidRequest,
    NamespaceNotFound,
    ProcessAlreadyExists,
    ProcessBroken,
    ProcessNotBroken,
    ProgressorError,
    Rejected,
    RepairConflict,
    RequestLost,
    TaskCancelled,
    TaskNotFound,
    process_not_found,
)
from progressor.handlers.codec import JSON, Wire, decode_any
from progressor.handlers.dry_run import unguarded
from progressor.handlers.process import Process
from progressor.inputs import DRY_RUN, given_key, redone_with
from progressor.model import Event, FeedKind, Metadata, TaskStatus, TaskType
from progressor.storage import (
    Gone,
    NotPrepared,
    Reason,
    Request,
    TaskOutcome,
    TaskRef,
    TaskRow,
)
from progressor.trace_context import trace_id_of

Read = Callable[[bytes], Any]
"""A function that reads an answer from its JSON."""
WatchedStatus = Literal["init", "running", "error", "removed"]
"""The status of a process that is watched."""
Fault = Literal["event_loop", "database"]
"""The part that does not answer: the event loop of the OS process that was asked, or its database."""


class Receipt(NamedTuple):
    """A request that was accepted: its task, and its idempotency key.

    `replayed`: the key had been used before for the same request, and this is the task of then. So it says
    of a first call, notify or repair, too, if the answer of PostgreSQL was lost, and a worker claimed the
    task before the client asked again.
    `fingerprint` tells the task from another one to which a promoted or restored server gives its number:
    keep both. `task`, `standing` and `task_type` spare the client that made the receipt a read; any other
    client does without. `answer` and `result` of a client name the errors that a receipt may lead to.
    """

    namespace: str
    process_id: str
    task_id: int
    idempotency_key: str
    replayed: bool
    task: TaskRef | None = None
    standing: TaskOutcome | None = None
    fingerprint: str | None = None
    task_type: TaskType | None = None


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One task of a trace, its values decoded as its namespace has them. `name` is the call's.

    `redoes` is the task that it runs again, `redone_by` the one that runs it again. Of a recurring timer
    `args` is the rule. `expires_at` is None for a request without an expiry. `trace_id` is that of the W3C
    trace in which it was made, None without one.
    """

    task_id: int
    task_type: TaskType
    status: TaskStatus
    name: str | None
    args: Any
    response: Any
    error: str | None
    idempotency_key: str | None
    context: Any
    scheduled_time: datetime
    running_time: datetime | None
    finished_time: datetime | None
    attempts_count: int
    last_retry_interval: timedelta | None
    worker_id: str | None
    events: tuple[Event, ...]
    redoes: int | None = None
    redone_by: int | None = None
    expires_at: datetime | None = None
    priority: int = 0
    trace_id: str | None = None

    @classmethod
    def of(cls, row: TaskRow, wire: Wire, of: Owning) -> TraceEntry:
        """Return a task of a process, as it is stored, with its values decoded."""
        refused = row.status is TaskStatus.ERROR
        return cls(
            task_id=row.task_id,
            task_type=row.task_type,
            status=row.status,
            name=row.name,
            args=_args_of(row, wire, of),
            # The response of a refused task holds the rejection; its text is the error.
            response=None if refused else wire.decode_any(row.response, "response", of),
            error=row.error,
            idempotency_key=row.idempotency_key,
            context=wire.decode_any(row.context, "context", of),
            scheduled_time=row.scheduled_time,
            running_time=row.running_time,
            finished_time=row.finished_time,
            attempts_count=row.attempts_count,
            last_retry_interval=row.last_retry_interval,
            worker_id=row.worker_id,
            events=tuple(wire.event(each, of) for each in row.events),
            redoes=redone_with(row.idempotency_key),
            redone_by=row.redone_by,
            expires_at=row.expires_at,
            priority=row.priority,
            trace_id=None if row.trace is None else trace_id_of(row.trace),
        )


def _args_of(row: TaskRow, wire: Wire, of: Owning) -> Any:
    if row.args is not None and row.task_type is TaskType.REPAIR and row.name == DRY_RUN:
        return decode_any(unguarded(wire.unseal(row.args, "args", of)))
    # The rule of a timer is the engine's own, and in no codec.
    decode = JSON.decode_any if wire.is_coded and row.task_type.is_timer else wire.decode_any
    return decode(row.args, "args", of)


class ProcessChange(NamedTuple):
    """A watched process as it was committed, with its events since the change before.

    `position` is a text to go on behind it. `status` is `init`, `running`, `error` (`detail` says what
    failed), or `removed`, which is the last. `last_event_id` is that of the last event that was told. If
    the database has lost that one, it is lower than before, and all events come again. `state` is None
    unless it was asked for.
    """

    position: str
    namespace: str
    process_id: str
    status: WatchedStatus
    events: tuple[Event, ...]
    last_event_id: int
    detail: str | None
    state: Any = None


class FeedEvent(NamedTuple):
    """An entry of the feed.

    `position` is a text to go on behind it. `id` names it for good: it is the same for all readers, however
    often they read it, and no other entry has it, not even of a process that is started anew.

    `event_id`, `name`, `payload` (decoded) and `metadata` are those of an event; of other kinds they are
    None, and {}. An event that was deleted before it was read has its `event_id` alone, and `is_deleted`.
    `timestamp` is when the step was saved.
    """

    position: str
    namespace: str
    process_id: str
    kind: FeedKind
    event_id: int | None
    name: str | None
    payload: Any
    metadata: Metadata
    timestamp: datetime
    task_id: int | None
    id: str = ""
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a search; `cursor` asks for the next one, None at the end."""

    items: list[Process[Any]]
    cursor: str | None


class Removal(NamedTuple):
    """The receipt of a removed process: its name, when it was created, and how many events it had.

    `removed_at` is None if it is not removed: in a dry run, or because of the `error`.
    """

    namespace: str
    process_id: str
    created_at: datetime
    events: int
    removed_at: datetime | None
    error: str | None = None


class RemovalPage(NamedTuple):
    """The receipts of a page of removals; `cursor` goes on behind it, None at the end."""

    removals: list[Removal]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a database: does it answer, with the right schema; who serves what, what is paused.

    `detail` is the error if it is not `ok`; `fault` is the part that does not answer, if it is known, and
    `fault_seconds` for how long it has not.
    """

    ok: bool
    detail: str | None
    workers: int
    namespaces: tuple[str, ...]
    paused: tuple[str, ...] = ()
    fault: Fault | None = None
    fault_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The options and schemas that a namespace's workers have written, for clients without its code."""

    name: str
    paused: bool
    options: dict[str, Any]
    schemas: dict[str, Any]

    @property
    def is_raw(self) -> bool:
        """Return whether a raw handler serves the namespace, in bytes."""
        return bool(self.options.get("raw"))

    @property
    def has_repair(self) -> bool | None:
        """Return whether the namespace has a repair handler; None if its workers do not say it."""
        return None if self.is_raw else self.options.get("has_repair")


def not_prepared(request: Request, outcome: NotPrepared) -> ProgressorError:
    """Return the error of a request that was not accepted."""
    namespace, process_id = request.namespace, request.process_id
    match outcome.reason:
        case Reason.EXISTS:
            return ProcessAlreadyExists(namespace, process_id)
        case Reason.NOT_FOUND if request.redoes is not None:
            return TaskNotFound(namespace, process_id, task_id=request.redoes.task_id)
        case Reason.NOT_FOUND:
            return process_not_found(namespace, process_id)
        case Reason.BROKEN:
            return ProcessBroken(namespace, process_id, detail=outcome.detail)
        case Reason.NOT_BROKEN:
            return ProcessNotBroken(namespace, process_id)
        case Reason.IN_REPAIR:
            return RepairConflict(namespace, process_id, detail="another repair of it runs or waits")
        case Reason.STRANDED:
            return RepairConflict(
                namespace, process_id, detail="requests that waited when it broke are still being cancelled"
            )
        case Reason.NO_NAMESPACE:
            return NamespaceNotFound(namespace)
        case Reason.CONFLICT:
            return IdempotencyConflict(namespace, process_id, request.idempotency_key)
        case _:
            assert_never(outcome.reason)


def not_there(process_id: str, task: TaskRef, gone: Gone | None) -> ProgressorError:
    """Return the error of a task that was accepted and has no row."""
    if gone is Gone.REMOVED:
        return process_not_found(
            task.namespace, process_id, detail="it was removed before this request was answered"
        )
    if gone is Gone.SWEPT:
        return TaskNotFound(task.namespace, process_id, task_id=task.task_id, is_deleted=True)
    return RequestLost(
        task.namespace,
        process_id,
        idempotency_key=given_key(task.idempotency_key),
        task_id=task.task_id,
        is_certain=gone is Gone.LOST,
    )


def response_of(
    process_id: str, task: TaskRef, answer: TaskOutcome, wire: Wire, read: Read | None = None
) -> Any:
    """Return the response of a final task of this process, as `read` reads its JSON, or raise its error."""
    namespace, owner = task.namespace, Owner(task.namespace, process_id)
    if answer.status is None:
        raise not_there(process_id, task, answer.gone)
    if answer.status is TaskStatus.FINISHED:
        if read is not None and answer.response is not None:
            return read(wire.unseal(answer.response, "response", owner))
        return wire.decode_any(answer.response, "response", owner)
    if answer.status is TaskStatus.CANCELLED:
        if task.idempotency_key is None:
            # Only timers have no key. A break does not cancel them, so the process may not be broken.
            raise TaskCancelled(namespace, process_id, task_id=task.task_id, detail=answer.error)
        raise ProcessBroken(namespace, process_id, detail=answer.error)
    rejection = answer.rejection()
    if rejection is None:
        raise HandlerFailed(namespace, process_id, error=answer.error or "unknown error")
    if rejection.invalid:
        raise InvalidRequest(rejection.reason, field=rejection.details.get("field"))
    refused = Expired if rejection.expired else Rejected
    raise refused(namespace, process_id, reason=rejection.reason, details=dict(rejection.details))
