"""The process of a schedule: its timers send; calls pause, resume, trigger and backfill it.

Rule: the timers of a schedule have its name. A worker whose code lacks a schedule serves its start and its
calls, which are the same for all, and leaves its timers to one that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from progressor.calendars import rule_of
from progressor.calendars.wall_clock import FIRST_MOMENT
from progressor.config import RetryPolicy
from progressor.errors import InvalidRequest, Reject
from progressor.errors.wordings import SCHEDULES
from progressor.handlers.namespace import Namespace
from progressor.handlers.schedules import Schedule
from progressor.inputs import names_like
from progressor.schedules.declared import arm, keep_due, take
from progressor.schedules.runs import ScheduleRuns
from progressor.schedules.sending import Sending
from progressor.schedules.state import Declaration, ScheduleState, Span
from progressor.schedules.waiting import MOST_WAITING, Scheduled, ask, go_on, queue_of

schedules = Namespace(
    SCHEDULES,
    state=ScheduleState,
    # A day and more: after that a schedule that fails is broken, and counts as such.
    retry_policy=RetryPolicy(max_interval=timedelta(minutes=1), max_attempts=1_500),
    on_zombie="retry",
    zombie_attempts=1_000,
)


def schedules_of(namespaces: Iterable[Namespace[Any]]) -> Namespace[ScheduleState] | None:
    """Return the namespace that serves the schedules of these; None if they declare none.

    InvalidRequest if the function that a schedule sends to is not there.
    """
    by_name = {each.name: each for each in namespaces}
    declared = [schedule for each in by_name.values() for schedule in each.schedules.values()]
    if SCHEDULES in by_name:
        raise InvalidRequest(f"the namespace {SCHEDULES} is the engine's own", field="namespaces")
    if not declared:
        return None
    serving = schedules.extended()
    for schedule in declared:
        _check_target(schedule, by_name)
        _serve(serving, schedule)
    return serving


def _check_target(schedule: Schedule, by_name: dict[str, Namespace[Any]]) -> None:
    for name, function in schedule.functions.items():
        served = by_name[name].served() if name in by_name else ["*"]
        if function not in served and "*" not in served:
            raise InvalidRequest(
                f"schedule {schedule.process_id} needs {function!r} of namespace {name} "
                f"(it has: {names_like(function, served)})",
                field="schedule",
            )


def _serve(serving: Namespace[ScheduleState], schedule: Schedule) -> None:
    @serving.timeout(schedule.process_id)
    async def due(process: Scheduled, *, runs: ScheduleRuns) -> None:
        await Sending(schedule, process, runs).due()

    @serving.timeout(queue_of(schedule.process_id))
    async def waits(process: Scheduled, *, runs: ScheduleRuns) -> None:
        await Sending(schedule, process, runs).next()


@schedules.init
async def begin(process: Scheduled, declaration: Declaration) -> None:
    """Begin a schedule: it sends from its first time on."""
    namespace, _, name = process.process_id.rpartition("/")
    process.metadata.update(namespace=namespace, schedule=name)
    process.state = ScheduleState(declaration=declaration, declared_at=process.now)
    arm(process)


@schedules.call
async def declare(process: Scheduled, declaration: Declaration, *, runs: ScheduleRuns) -> None:
    """Take the declaration of newer code; a rule that changed sends at its own next time, not before."""
    await take(process, declaration, runs)


@schedules.call
async def pause(process: Scheduled, reason: str = "", *, runs: ScheduleRuns) -> None:
    """Send nothing more until `resume`; times in between are passed over, and can be backfilled."""
    process.state.paused_at = process.state.paused_at or process.now
    process.state.reason = reason or process.state.reason
    await keep_due(process, runs)
    process.unset_timer(process.process_id)
    process.unset_timer(queue_of(process.process_id))


@schedules.call
async def resume(process: Scheduled) -> None:
    """Send again, from the next time on, and what waited when it was paused."""
    if process.state.paused_at is None:
        return
    process.state.paused_at = process.state.reason = None
    arm(process)
    go_on(process)


@schedules.call
async def trigger(process: Scheduled) -> datetime:
    """Send now, or once the run before has ended; return the nominal time: this moment."""
    _refuse_paused(process)
    ask(process, [process.now])
    return process.now


@schedules.call
async def backfill(process: Scheduled, span: Span) -> list[datetime]:
    """Send the times of the past from `since` on and before `until`, in their order; return them.

    One that was sent before is not sent again, while its target knows the key. Rejected if there are too
    many, if no time can be in the span, if `until` lies in the future, or while the schedule is paused.
    """
    _refuse_paused(process)
    times = times_of(process.state.declaration, span, now=process.now)
    ask(process, times)
    return times


def times_of(declaration: Declaration, span: Span, *, now: datetime) -> list[datetime]:
    """Return the times of the past that a backfill of this span sends; Reject if it cannot be."""
    until = now if span.until is None else span.until
    if until > now:
        raise Reject("until must not lie in the future: these times come by themselves")
    if span.since >= until:
        end = "in the past: a backfill sends nothing else" if span.until is None else "earlier than until"
        raise Reject(f"since must be {end}")
    timer = declaration.timer
    if timer.every is None:
        raise Reject("the schedule has no rule")
    rule = rule_of(timer.every)
    if isinstance(rule, timedelta):
        raise Reject("a plain period has no times of its own: give the schedule a Cron")
    times: list[datetime] = []
    # No moment is before the first that there is.
    since = max(span.since, FIRST_MOMENT)
    found = rule.after(since - timedelta(microseconds=1))
    while found is not None and found < until:
        if len(times) == MOST_WAITING:
            raise Reject(f"there are more than {MOST_WAITING:,} times: give a shorter span")
        times.append(found)
        found = rule.after(found)
    return times


def _refuse_paused(process: Scheduled) -> None:
    if process.state.paused_at is not None:
        raise Reject("the schedule is paused: resume it first", reason=process.state.reason)
