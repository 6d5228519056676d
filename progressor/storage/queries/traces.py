"""Tasks of a process as a trace shows them: which ones, in SQLAlchemy Core, and what their rows become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, select

from progressor.model import Event, TaskStatus, TaskType, shown_id
from progressor.storage.queries.searches import number_of
from progressor.storage.schema import processes, schedule, tasks
from progressor.storage.statements import Row


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

    @property
    def size(self) -> int:
        """How many bytes its values have, and those of its events."""
        own = (self.args, self.response, self.context, *(event.payload for event in self.events))
        return sum(len(value or b"") for value in own)


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
        """The order in which pages of it are read."""
        return "task_id" if self.last is None else "-task_id"


_IS_BROKEN = (
    select(processes.c.status == "error")
    .where(processes.c.process_no == tasks.c.process_no)
    .scalar_subquery()
    .label("is_broken")
)


def tasks_of(of: TraceRange) -> Select[Any]:
    """The tasks of a range, without their events."""
    process_no = (
        select(processes.c.process_no)
        .where(processes.c.namespace_no == number_of(of.namespace), processes.c.process_id == of.process_id)
        .scalar_subquery()
    )
    columns = [tasks.c[name] for name in TaskRow.__dataclass_fields__ if name != "events"]
    found = (
        select(*columns, tasks.c.process_no, schedule.c.claimable, _IS_BROKEN)
        .join_from(
            tasks,
            schedule,
            and_(schedule.c.process_no == tasks.c.process_no, schedule.c.task_id == tasks.c.task_id),
            isouter=True,
        )
        .where(tasks.c.process_no == process_no, tasks.c.task_id > of.after)
        .order_by(tasks.c.task_id.asc() if of.last is None else tasks.c.task_id.desc())
        .limit(of.limit if of.last is None else of.last)
    )
    return found if of.before is None else found.where(tasks.c.task_id < of.before)


def task_row(row: Row, made: Sequence[Event]) -> TaskRow:
    """A row of `tasks_of` with the events that its task made."""
    fields = {name: row[name] for name in TaskRow.__dataclass_fields__ if name != "events"}
    fields["task_type"] = TaskType(row["task_type"])
    fields["status"] = TaskStatus(row["status"])
    fields["attempts_count"] = row["attempts_count"] or 0
    if fields["task_type"].is_timer and row["claimable"] is False:
        fields["status"] = TaskStatus.HELD if row["is_broken"] else TaskStatus.BLOCKED
    if row["worker_id"] is not None:
        fields["worker_id"] = shown_id(row["worker_id"])
    return TaskRow(**fields, events=tuple(made))
