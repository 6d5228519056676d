"""Rows of PostgreSQL, turned into the nouns of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from progressor.model import (
    Disposition,
    ProcessStatus,
    Snapshot,
    Task,
    TaskStatus,
    TaskType,
    Timer,
    TimerStatus,
)
from progressor.storage.statements import SAVES, Results, Row
from progressor.storage.values import (
    Claimed,
    Continue,
    Duplicate,
    Gone,
    LostLease,
    NotPrepared,
    Postpone,
    Prepared,
    Reason,
    Request,
    Saved,
    Step,
    TaskOutcome,
    TaskRef,
)
from progressor.timers import SetTimer, UnsetTimer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")

RenewedRow = tuple[int, datetime, str]
"""The count and the time of a row in `workers` that was renewed, and the server that did it."""

# A look-up costs less than the call of an enum, and each request has one or two.
_STATUSES = {str(status): status for status in ProcessStatus}


def record_of(kind: type[D], row: Row, **others: Any) -> D:
    """Return a dataclass of the columns that have the names of its fields, and of these other values."""
    return kind(**{each.name: row[each.name] for each in fields(kind) if each.name in row} | others)


def snapshot_of(namespace: str, process_id: str, row: Row, timers: tuple[Timer, ...]) -> Snapshot:
    return Snapshot(
        process_no=row["process_no"],
        namespace=namespace,
        process_id=process_id,
        status=_STATUSES[row["status"]],
        previous_status=_STATUSES.get(row["previous_status"]),
        status_changed_at=row["status_changed_at"],
        created_at=row["created_at"],
        detail=row["detail"],
        aux_state=row["aux_state"],
        metadata=row["metadata"],
        corrupted_by=row["corrupted_by"],
        last_event_id=row["last_event_id"],
        timers=timers,
        birth=row["birth"],
        group_no=row.get("group_no"),
        first_event_id=row.get("first_event_id") or 1,
        swept_until=row.get("swept_until") or 0,
    )


def timers_of(task: Task, row: Row) -> tuple[Timer, ...]:
    """Return the timers of a process on which this task runs, as fragments/timers.sql found them."""
    waiting: dict[str, tuple[TaskType, datetime]] = {}
    if row["timer_type"] is not None:
        waiting[""] = TaskType(row["timer_type"]), row["timer_due"]
    for name, kind, due in row["named_timers"] or ():
        waiting[name] = TaskType(kind), datetime.fromisoformat(due)
    return beside(task, waiting)


def beside(task: Task, waiting: Mapping[str, tuple[TaskType, datetime]]) -> tuple[Timer, ...]:
    """Return the timers of a process on which this task runs, earliest first.

    They are those that wait, by name, and the task itself if it is one.
    """
    if not waiting and not task.task_type.is_timer:
        return ()
    status = TimerStatus.HELD if task.task_type is TaskType.REPAIR else TimerStatus.BLOCKED
    timers = [Timer(kind, due, status, name) for name, (kind, due) in waiting.items()]
    if task.task_type.is_timer and task.scheduled_time is not None:
        # A claim reads the schedule as it was before the claim.
        timers = [each for each in timers if each.name != (task.name or "")]
        timers.append(Timer(task.task_type, task.scheduled_time, TimerStatus.RUNNING, task.name or ""))
    return tuple(sorted(timers, key=attrgetter("due"))) if len(timers) > 1 else tuple(timers)


def _left_by(step: Step, now: datetime) -> dict[str, tuple[TaskType, datetime]]:
    """Return the timers that wait after this step, by name."""
    decision, task = step.decision, step.task
    left = {each.name: (each.task_type, each.due) for each in step.process.timers}
    if task.task_type.is_timer:
        left.pop(task.name or "", None)
    if decision.disposition is Disposition.RETRY:
        left[task.name or ""] = task.task_type, now + (decision.retry_interval or timedelta())
    for timer in decision.changes or (decision.timer,):
        match timer:
            case SetTimer(at=at, after=after, remove=remove, name=name):
                kind = TaskType.REMOVE if remove else TaskType.TIMEOUT
                left[name] = kind, now + (after or timedelta()) if at is None else at
            case UnsetTimer(name=name):
                left.pop(name, None)
    return left


def started_of(request: Request, row: Row) -> Prepared:
    """Return the outcome of a prepare_init whose process was made."""
    ref = ref_of(request, row, birth=request.lease)
    if not row["runs"] or request.worker_id is None:
        return Postpone(ref)
    return init_of(request, row)


def init_of(request: Request, row: Row) -> Continue:
    """Return a start that its worker holds, with the process that was made for it."""
    ref = ref_of(request, row, birth=request.lease)
    now: datetime = row["now"]
    process = Snapshot(
        process_no=ref.process_no,
        namespace=request.namespace,
        process_id=request.process_id,
        status=ProcessStatus.INIT,
        previous_status=None,
        status_changed_at=now,
        created_at=now,
        detail=None,
        aux_state=None,
        metadata=request.process_metadata or {},
        corrupted_by=None,
        last_event_id=0,
        birth=ref.birth,
    )
    return Continue(
        _task_of(request, _worker_of(request), ref, scheduled_time=now, running_time=now), process
    )


def prepared_of(request: Request, row: Row) -> Prepared:
    """Return the outcome of one prepare_*, by what the tables have of its key and its process."""
    if row["task_id"] is None:
        return _refused(request, row)
    if bytes(row["request_hash"] or b"") != request.request_hash:
        return NotPrepared(Reason.CONFLICT)
    ref = ref_of(request, row, birth=row["birth"])
    if row["runs"] and request.worker_id is not None:
        task = _task_of(
            request,
            request.worker_id,
            ref,
            scheduled_time=row["scheduled_time"],
            running_time=row["running_time"],
        )
        return Continue(task, snapshot_of(request.namespace, request.process_id, row, timers_of(task, row)))
    if row["own"] and row["task_status"] == TaskStatus.WAITING:
        return Postpone(ref)
    standing = TaskOutcome(TaskStatus(row["task_status"]), row["response"], row["error"])
    return Duplicate(ref, standing, is_own=bool(row["own"]))


def call_of(request: Request, row: Row) -> Continue:
    """Return a call that its worker holds, with its process; its task is not written yet."""
    ref, now = ref_of(request, row, birth=row["birth"]), row["now"]
    task = _task_of(request, _worker_of(request), ref, scheduled_time=now, running_time=now)
    return Continue(task, snapshot_of(request.namespace, request.process_id, row, timers_of(task, row)))


def ref_of(request: Request, row: Row, *, birth: int | None) -> TaskRef:
    """Return the reference to a request's task, with the key and the hash of the request."""
    return TaskRef(
        request.namespace,
        row["process_no"],
        row["task_id"],
        row.get("reply_to"),
        birth,
        request.idempotency_key,
        request.request_hash,
    )


def _worker_of(request: Request) -> int:
    if request.worker_id is None:
        raise AssertionError("a request that runs has a worker")
    return request.worker_id


def is_gone(row: Row) -> bool:
    """Return whether nothing is left of what was in the way of a start."""
    return row["is_served"] and row["status"] is None and row["task_id"] is None


def _task_of(
    request: Request, worker_id: int, ref: TaskRef, *, scheduled_time: datetime, running_time: datetime
) -> Task:
    return Task(
        namespace=request.namespace,
        process_id=request.process_id,
        task_id=ref.task_id,
        task_type=request.task_type,
        name=request.name,
        args=request.args,
        context=request.context,
        idempotency_key=request.idempotency_key,
        scheduled_time=scheduled_time,
        running_time=running_time,
        process_no=ref.process_no,
        reply_to=request.reply_to,
        worker_id=worker_id,
        lease=request.lease,
        request_hash=request.request_hash,
        expires_at=None if request.expires is None else scheduled_time + request.expires,
        trace=request.trace,
    )


def _refused(request: Request, row: Row) -> NotPrepared:
    status, detail = row["status"], row["detail"]
    if request.task_type is TaskType.INIT:
        return NotPrepared(Reason.EXISTS if row["is_served"] else Reason.NO_NAMESPACE)
    if status is None:
        return NotPrepared(Reason.NOT_FOUND)
    if request.task_type is TaskType.REPAIR:
        if status != ProcessStatus.ERROR:
            return NotPrepared(Reason.NOT_BROKEN)
        return NotPrepared(Reason.STRANDED if row["is_stranded"] else Reason.IN_REPAIR)
    return NotPrepared(Reason.BROKEN, detail)


def standing_of(row: Row) -> TaskOutcome:
    if row["status"] is None:
        return TaskOutcome(None, gone=Gone(row["gone"]))
    return TaskOutcome(TaskStatus(row["status"]), row["response"], row["error"])


def claimed_of(row: Row) -> Claimed:
    task = Task(
        namespace=row["namespace"],
        process_id=row["process_id"],
        task_id=row["task_id"],
        task_type=TaskType(row["task_type"]),
        name=row["name"],
        args=row["args"],
        context=row["context"],
        idempotency_key=row["idempotency_key"],
        scheduled_time=row["scheduled_time"],
        running_time=row["running_time"],
        last_retry_interval=row["last_retry_interval"],
        attempts_count=row["attempts_count"] or 0,
        process_no=row["process_no"],
        reply_to=row["reply_to"],
        worker_id=row["worker_id"],
        lease=row["lease"],
        request_hash=row["request_hash"],
        expires_at=row["expires_at"],
        trace=row["trace"],
    )
    return Claimed(task, snapshot_of(task.namespace, task.process_id, row, timers_of(task, row)))


def saved_of(step: Step, row: Row, cancelled: tuple[TaskRef, ...]) -> Saved:
    continuation = None
    timers: tuple[Timer, ...] = ()
    due: datetime | None = row["due"]
    if row["next_id"] is not None:
        continuation = Task(
            namespace=step.task.namespace,
            process_id=step.task.process_id,
            task_id=row["next_id"],
            task_type=TaskType(row["next_type"]),
            name=row["name"],
            args=row["args"],
            context=row["context"],
            idempotency_key=row["idempotency_key"],
            scheduled_time=row["scheduled_time"],
            running_time=row["now"],
            last_retry_interval=row["last_retry_interval"],
            attempts_count=row["attempts_count"] or 0,
            process_no=step.task.process_no,
            reply_to=row["reply_to"],
            worker_id=step.task.worker_id,
            lease=step.task.lease + 1,
            request_hash=row["request_hash"],
            expires_at=row["expires_at"],
            trace=row["trace"],
        )
        due = None
        if "timer_type" in row:
            # An earlier try saved it, at a time that is not known.
            timers = timers_of(continuation, row)
        else:
            left = _left_by(step, row["now"])
            if continuation.task_type.is_timer:
                left.pop(continuation.name or "", None)
            timers = beside(continuation, left)
    return Saved(row["now"], continuation, due, cancelled, timers)


def lite_outcomes_of(steps: Sequence[Step], rows: Iterable[Row]) -> list[Saved | None]:
    """Return the outcome of each step that save_lite ended; None for the others."""
    outcomes: list[Saved | None] = [None] * len(steps)
    for row in rows:
        place = row["ord"] - 1
        outcomes[place] = _lite_saved_of(steps[place], row)
    return outcomes


def _lite_saved_of(step: Step, row: Row) -> Saved:
    task, timer, now, due = step.task, step.decision.timer, row["now"], row["due"]
    if not isinstance(timer, SetTimer) or row["next_id"] is None:
        return Saved(now, due=due)
    following = Task(
        task.namespace,
        task.process_id,
        row["next_id"],
        TaskType.REMOVE if timer.remove else TaskType.TIMEOUT,
        timer.name or None,
        timer.occurrence,
        scheduled_time=due,
        running_time=now,
        process_no=task.process_no,
        worker_id=task.worker_id,
        lease=task.lease + 1,
        trace=step.trace,
    )
    # It is the only timer, and runs.
    running = Timer(following.task_type, due, TimerStatus.RUNNING, timer.name)
    return Saved(now, following, timers=(running,))


def grouped(rows: Iterable[Row], namespaces: Mapping[int, str]) -> dict[int, tuple[TaskRef, ...]]:
    """Return the cancelled tasks of each process, by its number; so are `namespaces` keyed."""
    found: dict[int, list[TaskRef]] = {}
    for row in rows:
        process_no = row["process_no"]
        ref = TaskRef(namespaces[process_no], process_no, row["task_id"], row["reply_to"])
        found.setdefault(process_no, []).append(ref)
    return {process_no: tuple(refs) for process_no, refs in found.items()}


def outcomes_of(steps: Sequence[Step], results: Results) -> list[Saved | LostLease]:
    """Return the outcome of each step: Saved, by this try or an earlier one, if it has a row."""
    rows = (row for verb in ("saved", *SAVES) for row in results.get(verb, ()))
    by_place = {row["ord"]: row for row in rows}
    cancelled: Mapping[int, tuple[TaskRef, ...]] = {}
    if waited := (*results.get("cancel_waiting", ()), *results.get("remove", ())):
        cancelled = grouped(waited, {step.task.process_no: step.task.namespace for step in steps})
    there = {row["process_no"] for row in results.get("lock", ())}
    return [
        saved_of(step, row, cancelled.get(step.task.process_no, ()))
        if (row := by_place.get(place))
        else LostLease(removed=step.task.process_no not in there)
        for place, step in enumerate(steps, start=1)
    ]
