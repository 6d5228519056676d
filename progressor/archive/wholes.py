"""Whole processes, read from the lines of a file and checked before anything is written.

Rule: a process is whole when its end has come and counts what came before it. What is checked here is what
the tables promise of every process; a file that somebody has changed by hand is refused with its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from progressor.archive.records import (
    EndRecord,
    EventRecord,
    HeadRecord,
    MessageRecord,
    OfProcess,
    PlaceRecord,
    ProcessRecord,
    TailRecord,
    TaskRecord,
    WholeProcess,
    read_line,
)
from progressor.errors import InvalidRequest
from progressor.model import ProcessStatus, TaskStatus, TaskType


def read_wholes(lines: Iterable[bytes]) -> Iterator[WholeProcess]:
    """Yield the processes of a file; raise InvalidRequest, with its line, for one that is not whole."""
    current: WholeProcess | None = None
    number = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = read_line(line, number=number)
        if isinstance(record, HeadRecord | PlaceRecord | TailRecord):
            continue
        if isinstance(record, ProcessRecord) and current is None:
            current = WholeProcess(record, [], [], [])
            continue
        if current is None or _name(record) != _name(current.process):
            raise _refused(number, "it does not belong to the process before it")
        if isinstance(record, EndRecord):
            _check(current, record, number)
            yield current
            current = None
        else:
            _add(current, record, number)
    if current is not None:
        raise _refused(number, "the file ends within a process: it was cut off here")


def _name(record: OfProcess) -> tuple[str, str]:
    return record.namespace, record.process_id


def _add(whole: WholeProcess, record: OfProcess, number: int) -> None:
    match record:
        case TaskRecord():
            whole.tasks.append(record)
        case EventRecord():
            whole.events.append(record)
        case MessageRecord():
            whole.messages.append(record)
        case _:
            raise _refused(number, "a process begins before the end of the one before it")


def _refused(number: int, why: str) -> InvalidRequest:
    return InvalidRequest(f"line {number:,}: {why}", field=f"line {number}")


def _check(whole: WholeProcess, end: EndRecord, number: int) -> None:
    for fault in _faults(whole, end):
        raise _refused(number, f"process {end.process_id!r:.80} of {end.namespace} is not whole: {fault}")


def _faults(whole: WholeProcess, end: EndRecord) -> Iterator[str]:
    for name, found, wanted in (
        ("tasks", whole.tasks, end.tasks),
        ("events", whole.events, end.events),
        ("messages", whole.messages, end.messages),
    ):
        if len(found) != wanted:
            yield f"{len(found):,} {name} in place of {wanted:,}"
    yield from _faults_of_tasks(whole.tasks)
    yield from _faults_of_process(whole.process, whole.tasks)
    first, last = whole.process.first_event_id or 1, whole.process.last_event_id
    if [event.event_id for event in whole.events] != list(range(first, last + 1)):
        yield f"its events are not those from {first:,} to {last:,}"


def _faults_of_tasks(tasks: Sequence[TaskRecord]) -> Iterator[str]:
    ids = [task.task_id for task in tasks]
    if ids != sorted(set(ids)):
        yield "its tasks are not in their order"
    keys = [task.idempotency_key for task in tasks if task.idempotency_key is not None]
    if len(set(keys)) < len(keys):
        yield "two tasks have one idempotency key"
    timers = [task.name for task in tasks if task.waits and task.task_type.is_timer]
    if len(set(timers)) < len(timers):
        yield "two timers have one name"
    if sum(task.status is TaskStatus.RUNNING for task in tasks) > 1:
        yield "two tasks run"
    if any(task.waits is not (task.finished_time is None) for task in tasks):
        yield "a task has ended without its time, or waits with one"


def _faults_of_process(process: ProcessRecord, tasks: Sequence[TaskRecord]) -> Iterator[str]:
    waiting = {task.task_type for task in tasks if task.waits}
    if (process.status is ProcessStatus.INIT) is not (TaskType.INIT in waiting):
        yield f"its status is {process.status}, but {'an' if TaskType.INIT in waiting else 'no'} init waits"
    if (process.status is ProcessStatus.ERROR) is not (process.detail is not None):
        yield f"its status is {process.status}, {'with' if process.detail else 'without'} a detail"
    if TaskType.REPAIR in waiting and process.status is not ProcessStatus.ERROR:
        yield "a repair waits, and it is not broken"
    broke = {task.task_id for task in tasks if task.status is TaskStatus.ERROR}
    if process.corrupted_by is not None and (
        process.status is not ProcessStatus.ERROR or process.corrupted_by not in broke
    ):
        yield "corrupted_by is not the task that broke it"
