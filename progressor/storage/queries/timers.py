"""The timers of a process, as reads select and show them.

Rule: every look-up of a timer goes through its own index, one process at a time: as a correlated subquery
the planner cannot turn it into a join that reads them all.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from datetime import datetime
from typing import Any

from pydantic_core import from_json
from sqlalchemy import (
    ColumnElement,
    FromClause,
    ScalarSelect,
    and_,
    case,
    func,
    literal,
    literal_column,
    select,
    text,
    union_all,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by

from progressor.calendars.rules import nominal_of, rule_of
from progressor.errors import InvalidRequest
from progressor.model import TaskType, Timer, TimerStatus
from progressor.storage.schema import running, schedule, tasks
from progressor.storage.statements import Row

_WAITS, _RUNS, _OF_RUNS = schedule.alias("waits"), running.alias("runs"), tasks.alias("of_runs")
_OF_WAITS = tasks.alias("of_waits")
_IS_OF_RUNS = and_(_OF_RUNS.c.process_no == _RUNS.c.process_no, _OF_RUNS.c.task_id == _RUNS.c.task_id)


def timers_of(process: FromClause) -> ColumnElement[Any]:
    """Select the timers of a process, waiting or running, earliest first, as one column: `timers`."""
    waits = select(
        _WAITS.c.task_type.label("timer_type"),
        _WAITS.c.scheduled_time.label("timer_due"),
        case(
            (process.c.status == "error", literal(TimerStatus.HELD.value)),
            # The first of them can be claimed, unless something else comes before all of them.
            (~func.bool_or(_WAITS.c.claimable).over(), literal(TimerStatus.BLOCKED.value)),
            (_WAITS.c.scheduled_time <= func.now(), literal(TimerStatus.OVERDUE.value)),
            else_=literal(TimerStatus.WAITING.value),
        ).label("timer_status"),
        _WAITS.c.timer.label("timer_name"),
        _rule_of(_WAITS).label("timer_rule"),
    ).where(_is_timer_of(process))
    runs = (
        select(
            _RUNS.c.task_type,
            _OF_RUNS.c.scheduled_time,
            literal(TimerStatus.RUNNING.value),
            func.coalesce(_OF_RUNS.c.name, ""),
            func.encode(_OF_RUNS.c.args, "base64"),
        )
        .join_from(_RUNS, _OF_RUNS, _IS_OF_RUNS)
        .where(_RUNS.c.process_no == process.c.process_no, _IS_RUNNING_TIMER)
    )
    found = union_all(waits.correlate(process), runs.correlate(process)).subquery("timer")
    each = func.jsonb_build_array(*found.c)
    listed = func.jsonb_agg(aggregate_order_by(each, found.c.timer_due, found.c.timer_name))
    return select(listed).correlate(process).scalar_subquery().label("timers")


def shown_timers(row: Row) -> tuple[Timer, ...]:
    """Return the timers that `timers_of` found."""
    return tuple(_timer(*each) for each in row.get("timers") or ())


def _timer(kind: str, due: str, status: str, name: str, kept: str | None) -> Timer:
    found = Timer(TaskType(kind), datetime.fromisoformat(due), TimerStatus(status), name)
    if kept is None:
        return found
    # A newer release may have set it: by a rule that this one does not know, or in a form of its own.
    with suppress(ValueError, KeyError, TypeError, InvalidRequest):
        stored = from_json(base64.b64decode(kept))
        found = found._replace(drift=stored["drift"], nominal=datetime.fromisoformat(stored["nominal"]))
        every = rule_of(stored["every"])
        found = found._replace(every=every, nominal=nominal_of(every, stored["nominal"]))
    return found


def _rule_of(waits: FromClause) -> ColumnElement[str]:
    """Select what the task of a timer keeps of its rule, in base64."""
    kept = select(func.encode(_OF_WAITS.c.args, "base64")).where(
        _OF_WAITS.c.process_no == waits.c.process_no, _OF_WAITS.c.task_id == waits.c.task_id
    )
    return kept.correlate(waits).scalar_subquery()


# Must be worded exactly as the index on timers, or that is not used.
_IS_RUNNING_TIMER = _RUNS.c.task_type.in_([TaskType.TIMEOUT.value, TaskType.REMOVE.value])


def _is_timer_of(process: FromClause) -> ColumnElement[bool]:
    return and_(
        literal_column("waits.process_no + 0") == process.c.process_no,
        text("waits.task_type IN ('timeout', 'remove')"),
    )


def waiting_timer(process: FromClause, name: str | None = None) -> ScalarSelect[int]:
    """Select one timer that waits, if any does; with `name` the one of this name."""
    found = select(_WAITS.c.task_id).where(_is_timer_of(process))
    if name is not None:
        found = found.where(_WAITS.c.timer == name)
    return found.limit(1).correlate(process).scalar_subquery()


def running_timer(process: FromClause, name: str | None = None) -> ScalarSelect[int]:
    """Select the timer that runs, if one does; with `name` only if it has this name."""
    found = select(_RUNS.c.task_id).where(_RUNS.c.process_no == process.c.process_no, _IS_RUNNING_TIMER)
    if name is not None:
        found = found.join(_OF_RUNS, _IS_OF_RUNS).where(func.coalesce(_OF_RUNS.c.name, "") == name)
    return found.correlate(process).scalar_subquery()
