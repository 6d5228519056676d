"""The declaration of a schedule: begun, and taken anew from newer code.

Rule: another rule sends nothing before its own next time. A time that has come is not lost with the timer
that had it: it waits for its turn, or the log says why not.
"""

from __future__ import annotations

from progressor.model import TimerStatus
from progressor.schedules.runs import ScheduleRuns
from progressor.schedules.state import Declaration
from progressor.schedules.waiting import AT_ONCE, Scheduled, enqueue_or_skip, go_on, queue_of
from progressor.timers import SetTimer
from progressor.timers.recurrence import Occurrence


def arm(process: Scheduled) -> None:
    """Set the timer of a schedule by its declaration: to the first time that is to come."""
    process.set_timer(process.process_id, **process.state.declaration.timer.keywords())


async def take(process: Scheduled, declaration: Declaration, runs: ScheduleRuns) -> None:
    """Take the declaration of newer code, if it differs."""
    state = process.state
    if declaration == state.declaration:
        return
    is_moved = declaration.timer != state.declaration.timer and state.paused_at is None
    if is_moved:
        await keep_due(process, runs)
    state.replaced, state.declaration, state.declared_at = state.declaration, declaration, process.now
    if is_moved:
        arm(process)


async def keep_due(process: Scheduled, runs: ScheduleRuns) -> None:
    """Have a time wait that has come and was not sent: it failed, or nobody has taken it yet."""
    timer = await runs.timer(process.process_id)
    if timer is None or timer.nominal is None or timer.status is TimerStatus.RUNNING:
        return
    if timer.nominal > process.now:
        return
    rule = SetTimer(**process.state.declaration.timer.keywords()).recurrence()
    found, occurrence = [], Occurrence(rule, timer.nominal).wanted(process.now)
    while occurrence is not None and occurrence.nominal <= process.now:
        found.append(occurrence)
        occurrence = occurrence.next(process.now)
    if not found:
        process.emit("skipped", nominal=timer.nominal, because="the rule changed")
        return
    for each in found:
        if missed := each.missed(process.now):
            process.emit("missed", times=missed, until=each.nominal)
        enqueue_or_skip(process, each.nominal)
    if occurrence is not None and occurrence.passed:
        # More were due than are caught up.
        process.emit("missed", times=occurrence.passed, until=process.now)
    if queue_of(process.process_id) not in process.timers:
        # Not before it would have been tried again, or its hours begin.
        go_on(process, max(timer.due - process.now, AT_ONCE))
