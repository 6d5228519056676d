"""Between items and rows: the columns of a batch, and the nouns that rows become."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from pydantic_core import to_json

from progressor.model import (
    Decision,
    Disposition,
    Metadata,
    ProcessStatus,
    Snapshot,
    Task,
    TaskStatus,
    TaskType,
    Timer,
    TimerStatus,
)
from progressor.storage.arrays import (
    BigintArray,
    BooleanArray,
    BytesArray,
    TextArray,
    TimestampArray,
    microseconds,
)
from progressor.storage.items import (
    Claimed,
    Continue,
    Duplicate,
    Import,
    LostLease,
    NotPrepared,
    Postpone,
    Prepared,
    Reason,
    Request,
    Saved,
    Standing,
    Step,
    TaskRef,
)

Row = dict[str, Any]
Columns = dict[str, Any]
T = TypeVar("T")

# Of JSON: a text, or a number that is written with an exponent because it is large.
_TEXT_OR_LARGE = re.compile(r'"(?:[^"\\]|\\.)*"|-?[\d.]+e\+\d+')


def json_text(value: Metadata | None) -> str | None:
    """A metadata dict as JSON text; None stays None."""
    if value is None:
        return None
    text = to_json(value).decode() if value else "{}"
    # jsonb forgets the exponent, and 1e+16 would come back as a whole number.
    return _TEXT_OR_LARGE.sub(_with_a_point, text) if "e+" in text else text


def _with_a_point(token: re.Match[str]) -> str:
    return token[0] if token[0][0] == '"' else f"{float(token[0]):.1f}"


def request_columns(requests: Sequence[Request]) -> Columns:
    return {
        "namespace": TextArray([r.namespace for r in requests]),
        "process_id": TextArray([r.process_id for r in requests]),
        "task_type": TextArray([r.task_type.value for r in requests]),
        "name": TextArray([r.name for r in requests]),
        "args": BytesArray([r.args for r in requests]),
        "process_metadata": TextArray([json_text(r.process_metadata or {}) for r in requests]),
        "idempotency_key": TextArray([r.idempotency_key for r in requests]),
        "request_hash": BytesArray([r.request_hash for r in requests]),
        "context": BytesArray([r.context for r in requests]),
        "reply_to": BigintArray([r.reply_to for r in requests]),
        "worker_id": BigintArray([r.worker_id for r in requests]),
        "lease": BigintArray([r.lease for r in requests]),
    }


def step_columns(steps: Sequence[Step]) -> Columns:
    tasks = [step.task for step in steps]
    decisions = [step.decision for step in steps]
    answers = [Standing.of(decision.reply) for decision in decisions]
    return {
        **task_key_columns(tasks),
        "disposition": TextArray([decision.disposition.value for decision in decisions]),
        "status": TextArray([d.status and d.status.value for d in decisions]),
        "aux_state": BytesArray([decision.aux_state for decision in decisions]),
        "process_metadata": TextArray([json_text(decision.metadata) for decision in decisions]),
        "last_event_id": BigintArray(
            [step.process.last_event_id + len(step.decision.events) for step in steps]
        ),
        "response": BytesArray([answer.response for answer in answers]),
        "error": TextArray([answer.error for answer in answers]),
        **timer_columns(decisions),
        "delay": BigintArray([_delay(decision) for decision in decisions]),
        "keeps_slot": BooleanArray([step.keeps_slot for step in steps]),
        **_event_columns(steps),
    }


def timer_columns(decisions: Sequence[Decision]) -> Columns:
    timers = [decision.timer for decision in decisions]
    return {
        "timer_type": TextArray(
            [t and (TaskType.REMOVE if t.remove else TaskType.TIMEOUT).value for t in timers]
        ),
        "timer_at": TimestampArray([timer and timer.at for timer in timers]),
    }


def _event_columns(steps: Sequence[Step]) -> Columns:
    events = [
        (step.task, event_id, event)
        for step in steps
        if step.decision.events and step.decision.disposition is not Disposition.REMOVE
        for event_id, event in enumerate(step.decision.events, start=step.process.last_event_id + 1)
    ]
    return {
        "event_process_no": BigintArray([task.process_no for task, _, _ in events]),
        "event_task_id": BigintArray([task.task_id for task, _, _ in events]),
        "event_id": BigintArray([event_id for _, event_id, _ in events]),
        "event_metadata": TextArray([json_text(event.metadata) for _, _, event in events]),
        "event_payload": BytesArray([event.payload for _, _, event in events]),
    }


def _delay(decision: Decision) -> int | None:
    if decision.retry_interval is not None:
        return microseconds(decision.retry_interval)
    if decision.timer is not None and decision.timer.after is not None:
        return microseconds(decision.timer.after)
    return None


def task_key_columns(tasks: Sequence[Task]) -> Columns:
    return {
        "process_no": BigintArray([task.process_no for task in tasks]),
        "task_id": BigintArray([task.task_id for task in tasks]),
        "worker_id": BigintArray([task.worker_id for task in tasks]),
        "lease": BigintArray([task.lease for task in tasks]),
    }


def life_columns(process_no: int) -> Columns:
    """The key of a life of a process, whatever runs on it."""
    nothing = BigintArray([None])
    keys = {"task_id": nothing, "worker_id": nothing, "lease": nothing}
    return {"process_no": BigintArray([process_no]), **keys, "now": None}


def release_columns(tasks: Sequence[Task]) -> Columns:
    """The keys of tasks that go back to the schedule, each at its own time."""
    nothing = [None] * len(tasks)
    return {**task_key_columns(tasks), "delay": BigintArray(nothing), "detail": TextArray(nothing)}


def ending_columns(steps: Sequence[Step]) -> Columns:
    """The keys of steps that end their processes, and why."""
    return {
        **task_key_columns([step.task for step in steps]),
        "detail": TextArray([step.decision.reply.error for step in steps]),
    }


def import_columns(item: Import) -> Columns:
    timer = item.timer
    kind = TaskType.REMOVE if timer is not None and timer.remove else TaskType.TIMEOUT
    return {
        "namespace": item.namespace,
        "process_id": item.process_id,
        "idempotency_key": item.idempotency_key,
        "status": item.status,
        "detail": item.detail,
        "aux_state": item.aux_state,
        "process_metadata": json_text(item.metadata or {}),
        "last_event_id": len(item.events),
        "event_id": BigintArray(range(1, len(item.events) + 1)),
        "event_timestamp": TimestampArray([event.timestamp for event in item.events]),
        "event_metadata": TextArray([json_text(event.metadata) for event in item.events]),
        "event_payload": BytesArray([event.payload for event in item.events]),
        "timer_type": kind.value,
        "timer_at": timer and timer.at,
        "delay": microseconds(timer.after) if timer is not None and timer.after is not None else None,
    }


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
    )


def timer_of(task: Task, kind: str | None, due: datetime | None) -> Timer | None:
    """The timer of a process on which this task runs: the task itself, or what comes after it."""
    if task.task_type.is_timer:
        kind, due, status = task.task_type, task.scheduled_time, TimerStatus.RUNNING
    elif task.task_type is TaskType.REPAIR:
        status = TimerStatus.HELD
    else:
        status = TimerStatus.BLOCKED
    return None if kind is None or due is None else Timer(TaskType(kind), due, status)


def started_of(request: Request, row: Row) -> Prepared:
    """The outcome of a prepare_init whose process was made."""
    ref = TaskRef(request.namespace, row["process_no"], row["task_id"])
    if not row["runs"] or request.worker_id is None:
        return Postpone(ref)
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
    )
    return Continue(
        _task_of(request, request.worker_id, ref, scheduled_time=now, running_time=now), process
    )


def prepared_of(request: Request, row: Row) -> Prepared:
    """The outcome of one prepare_*, from what the tables say of its key and its process."""
    if row["task_id"] is None:
        return _refused(request, row)
    if bytes(row["request_hash"] or b"") != request.request_hash:
        return NotPrepared(Reason.CONFLICT)
    ref = TaskRef(request.namespace, row["process_no"], row["task_id"])
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
    return Duplicate(ref, Standing(TaskStatus(row["task_status"]), row["response"], row["error"]))


def is_gone(row: Row) -> bool:
    """Whether a start that was not made finds nothing at all that was in its way."""
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
    )


def _refused(request: Request, row: Row) -> NotPrepared:
    status, detail = row["status"], row["detail"]
    if request.task_type is TaskType.INIT:
        return NotPrepared(Reason.EXISTS if row["is_served"] else Reason.NO_NAMESPACE)
    if status is None:
        return NotPrepared(Reason.NOT_FOUND)
    if request.task_type is TaskType.REPAIR:
        return NotPrepared(Reason.NOT_BROKEN, detail)
    return NotPrepared(Reason.BROKEN, detail)


def standing_of(row: Row) -> Standing:
    status = row["status"]
    return Standing(TaskStatus(status) if status else None, row["response"], row["error"])


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
        attempts_count=row["attempts_count"],
        process_no=row["process_no"],
        reply_to=row["reply_to"],
        worker_id=row["worker_id"],
        lease=row["lease"],
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
            attempts_count=row["attempts_count"],
            process_no=step.task.process_no,
            reply_to=row["reply_to"],
            worker_id=step.task.worker_id,
            lease=step.task.lease + 1,
        )
        timer, due = timer_of(continuation, row["timer_type"], due), None
    return Saved(row["now"], continuation, due, cancelled, timer)


def grouped(rows: Iterable[Row], namespaces: Mapping[int, str]) -> dict[int, tuple[TaskRef, ...]]:
    """Cancelled tasks that somebody waits for, by the number of their process; `namespaces` by the same."""
    found: dict[int, list[TaskRef]] = {}
    for row in rows:
        process_no = row["process_no"]
        ref = TaskRef(namespaces[process_no], process_no, row["task_id"], row["reply_to"])
        found.setdefault(process_no, []).append(ref)
    return {process_no: tuple(refs) for process_no, refs in found.items()}


def outcomes_of(steps: Sequence[Step], rows: Sequence[Row], told: Sequence[Row]) -> list[Saved | LostLease]:
    """What became of each step: saved if there is a row of it."""
    by_place = {row["ord"]: row for row in rows}
    cancelled = grouped(told, {step.task.process_no: step.task.namespace for step in steps}) if told else {}
    return [
        saved_of(step, row, cancelled.get(step.task.process_no, ()))
        if (row := by_place.get(place))
        else LostLease()
        for place, step in enumerate(steps, start=1)
    ]
