"""The nominal times of a schedule that wait for their turn, and the timer that sends them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from progressor.errors import Reject
from progressor.handlers.process import Process
from progressor.schedules.state import ScheduleState

Scheduled = Process[ScheduleState]

MOST_WAITING = 1_000
"""Nominal times that wait at once."""
AT_ONCE = timedelta(0)


def queue_of(process_id: str) -> str:
    """Return the name of the timer that sends what waits."""
    return f"{process_id} queue"


def enqueue(process: Scheduled, times: Sequence[datetime]) -> None:
    """Have times wait for their turn, each once; Reject if too many would wait."""
    waiting = process.state.waiting
    new = [each for each in times if each not in waiting]
    if len(waiting) + len(new) > MOST_WAITING:
        raise Reject(f"more than {MOST_WAITING:,} times would wait", waiting=len(waiting))
    process.state.waiting = waiting + new


def enqueue_or_skip(process: Scheduled, nominal: datetime) -> None:
    """Have a time wait for its turn; if too many wait, it is dropped, and the log says so."""
    if len(process.state.waiting) == MOST_WAITING:
        process.emit("skipped", nominal=nominal, because=f"{MOST_WAITING:,} times wait")
    else:
        enqueue(process, [nominal])


def ask(process: Scheduled, times: Sequence[datetime]) -> None:
    """Have times that somebody asked for sent in their turn; Reject if too many would wait."""
    enqueue(process, times)
    if times:
        process.state.asked = process.state.waiting[-1]
    go_on(process)


def go_on(process: Scheduled, after: timedelta = AT_ONCE) -> None:
    """Have what waits sent by a step of its own."""
    state = process.state
    if state.paused_at is None and (state.waiting or state.fan_out is not None):
        process.set_timer(queue_of(process.process_id), after=after)
