"""Traces: the statement that selects the tasks of a process, and the entries that its rows become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, case, func, literal_column, select, text

from progressor.inputs import REDO_KEY
from progressor.model import Event, TaskStatus, TaskType, shown_id
from progressor.storage.queries.criteria import TaskRow, TraceRange
from progressor.storage.queries.searches import number_of
from progressor.storage.schema import processes, schedule, tasks
from progressor.storage.statements import Row

_IS_BROKEN = (
    select(processes.c.status == "error")
    .where(processes.c.process_no == tasks.c.process_no)
    .scalar_subquery()
    .label("is_broken")
)


# Each look-up a subquery with one row: joined, a deep mailbox would be read whole for every task.
_WAITS, _FIRST = schedule.alias("waits"), schedule.alias("first")
_IS_CLAIMABLE = (
    select(_WAITS.c.claimable)
    .where(_WAITS.c.process_no == tasks.c.process_no, _WAITS.c.task_id == tasks.c.task_id)
    .scalar_subquery()
)
_CLAIMABLE_TIMER = (
    select(_FIRST.c.task_id)
    .where(
        literal_column("first.process_no + 0") == tasks.c.process_no,
        text("first.task_type IN ('timeout', 'remove') AND first.claimable"),
    )
    .limit(1)
    .scalar_subquery()
)
# A timer behind an earlier one that can be claimed waits for its own time.
_IS_BLOCKED = case((_IS_CLAIMABLE.is_(False), _CLAIMABLE_TIMER.is_(None))).label("is_blocked")

_REDO = tasks.alias("redo")
# By the whole key of the index, as statements look for the task of a key.
_REDONE_BY = (
    select(_REDO.c.task_id)
    .where(
        # As text: a bound 0 is a bigint, and then it is not the expression of the index.
        literal_column("redo.process_no + 0") == tasks.c.process_no,
        _REDO.c.idempotency_key == func.concat(REDO_KEY, tasks.c.task_id),
    )
    .scalar_subquery()
    .label("redone_by")
)
_MADE = ("events", "redone_by")
# Tasks of one part of a trace: to find where it has no room, PostgreSQL reads all that it may have. For
# each part the events are read anew, so it is a large one.
_TASKS_AT_ONCE = 100_000


def part_of(of: TraceRange) -> tuple[TraceRange, bool]:
    """Return the first part of a range, and whether there may be others."""
    most = of.limit if of.last is None else of.last
    if most is not None and most <= _TASKS_AT_ONCE:
        return of, False
    if of.last is None:
        return of._replace(limit=_TASKS_AT_ONCE), True
    return of._replace(last=_TASKS_AT_ONCE), True


def tasks_of(of: TraceRange) -> Select[Any]:
    """Select the tasks of a range, without their events."""
    process_no = (
        select(processes.c.process_no)
        .where(processes.c.namespace_no == number_of(of.namespace), processes.c.process_id == of.process_id)
        .scalar_subquery()
    )
    columns = [tasks.c[name] for name in TaskRow.__dataclass_fields__ if name not in _MADE]
    found = (
        select(*columns, tasks.c.process_no, _IS_BLOCKED, _IS_BROKEN, _REDONE_BY)
        .select_from(tasks)
        .where(tasks.c.process_no == process_no, tasks.c.task_id > of.after)
        .order_by(tasks.c.task_id.asc() if of.last is None else tasks.c.task_id.desc())
        .limit(of.limit if of.last is None else of.last)
    )
    return found if of.before is None else found.where(tasks.c.task_id < of.before)


def task_row(row: Row, made: Sequence[Event]) -> TaskRow:
    """Return the entry for a row of `tasks_of`, with the events that its task made."""
    fields = {name: row[name] for name in TaskRow.__dataclass_fields__ if name != "events"}
    fields["task_type"] = TaskType(row["task_type"])
    fields["status"] = TaskStatus(row["status"])
    fields["attempts_count"], fields["priority"] = row["attempts_count"] or 0, row["priority"] or 0
    if fields["task_type"].is_timer and row["is_blocked"]:
        fields["status"] = TaskStatus.HELD if row["is_broken"] else TaskStatus.BLOCKED
    if row["worker_id"] is not None:
        fields["worker_id"] = shown_id(row["worker_id"])
    return TaskRow(**fields, events=tuple(made))
