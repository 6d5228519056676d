"""Rows of PostgreSQL, turned into the nouns of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from progressor.model import ProcessStatus, Snapshot, Task, TaskStatus, TaskType, Timer, TimerStatus
from progressor.storage.statements import Results, Row
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

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")


def record_of(kind: type[D], row: Row, **others: Any) -> D:
    """Return a dataclass of the columns that have the names of its fields, and of these other values."""
    return kind(**{each.name: row[each.name] for each in fields(kind) if each.name in row} | others)


def snapshot_of(namespace: str, process_id: str, row: Row, timer: Timer | None) -> Snapshot:
    previous = row["previous_status"]
    return Snapshot(
        process_no=row["process_no"],
        namespace=namespace,
        process_id=process_id,
        status=ProcessStatus(row["status"]),
        previous_status=ProcessStatus(previous) if previous else None,
        status_changed_at=row["status_changed_at"],
        created_at=row["created_at"],
        detail=row["detail"],
        aux_state=row["aux_state"],
        metadata=row["metadata"],
        corrupted_by=row["corrupted_by"],
        last_event_id=row["last_event_id"],
        timer=timer,
        birth=row["birth"],
    )


def timer_of(task: Task, kind: str | None, due: datetime | None) -> Timer | None:
    """Return the timer of a process on which this task runs: the task itself, or the timer behind it."""
    if task.task_type.is_timer:
        kind, due, status = task.task_type, task.scheduled_time, TimerStatus.RUNNING
    elif task.task_type is TaskType.REPAIR:
        status = TimerStatus.HELD
    else:
        status = TimerStatus.BLOCKED
    return None if kind is None or due is None else Timer(TaskType(kind), due, status)


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
        timer = timer_of(task, row["timer_type"], row["timer_due"])
        return Continue(task, snapshot_of(request.namespace, request.process_id, row, timer))
    if row["own"] and row["task_status"] == TaskStatus.WAITING:
        return Postpone(ref)
    standing = TaskOutcome(TaskStatus(row["task_status"]), row["response"], row["error"])
    return Duplicate(ref, standing, is_own=bool(row["own"]))


def call_of(request: Request, row: Row) -> Continue:
    """Return a call that its worker holds, with its process; its task is not written yet."""
    ref, now = ref_of(request, row, birth=row["birth"]), row["now"]
    task = _task_of(request, _worker_of(request), ref, scheduled_time=now, running_time=now)
    timer = timer_of(task, row["timer_type"], row["timer_due"])
    return Continue(task, snapshot_of(request.namespace, request.process_id, row, timer))


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
    )
    timer = timer_of(task, row["timer_type"], row["timer_due"])
    return Claimed(task, snapshot_of(task.namespace, task.process_id, row, timer))


def saved_of(step: Step, row: Row, cancelled: tuple[TaskRef, ...]) -> Saved:
    continuation = timer = None
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
        )
        timer, due = timer_of(continuation, row["timer_type"], due), None
    return Saved(row["now"], continuation, due, cancelled, timer)


def lite_outcomes_of(steps: Sequence[Step], rows: Iterable[Row]) -> list[Saved | None]:
    """Return the outcome of each step that save_lite ended; None for the others."""
    outcomes: list[Saved | None] = [None] * len(steps)
    for row in rows:
        place = row["ord"] - 1
        outcomes[place] = _lite_saved_of(steps[place], row)
    return outcomes


def _lite_saved_of(step: Step, row: Row) -> Saved:
    task, timer, now, due = step.task, step.decision.timer, row["now"], row["due"]
    if timer is None or row["next_id"] is None:
        return Saved(now, due=due)
    kind = TaskType.REMOVE if timer.remove else TaskType.TIMEOUT
    following = Task(
        task.namespace,
        task.process_id,
        row["next_id"],
        kind,
        scheduled_time=due,
        running_time=now,
        process_no=task.process_no,
        worker_id=task.worker_id,
        lease=task.lease + 1,
    )
    return Saved(now, following, timer=Timer(kind, due, TimerStatus.RUNNING))


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
    by_place = {row["ord"]: row for row in (*results.get("saved", ()), *results["save_result"])}
    cancelled: Mapping[int, tuple[TaskRef, ...]] = {}
    if waited := (*results.get("cancel_waiting", ()), *results.get("remove", ())):
        cancelled = grouped(waited, {step.task.process_no: step.task.namespace for step in steps})
    there = {row["process_no"] for row in results["lock"]}
    return [
        saved_of(step, row, cancelled.get(step.task.process_no, ()))
        if (row := by_place.get(place))
        else LostLease(removed=step.task.process_no not in there)
        for place, step in enumerate(steps, start=1)
    ]
