"""The sending of a schedule: what its timers do in a step.

Rule: a nominal time is sent in the step that notes it, under a key that is made of it. So it is sent once,
however many workers there are, and a backfill of what was sent changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from progressor.errors import InvalidRequest, Reject
from progressor.handlers.process import Process
from progressor.handlers.schedules import Schedule
from progressor.messages.message import Message
from progressor.schedules.runs import ScheduleRuns
from progressor.schedules.state import FanOut, ScheduleState, Sent

Scheduled = Process[ScheduleState]

MOST_WAITING = 1_000
"""Nominal times that wait at once."""
AT_ONCE = timedelta(0)
_SHORTEST_LOOK, _LONGEST_LOOK = timedelta(milliseconds=100), timedelta(minutes=1)
# Of the time that a run has taken, the part after which it is looked at again.
_LOOKS = 4


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


@dataclass(frozen=True, slots=True)
class Sending:
    """One step of a schedule in which one of its timers fires."""

    schedule: Schedule
    process: Scheduled
    runs: ScheduleRuns

    async def due(self) -> None:
        """Send the nominal time, or do with it what `overlap` says."""
        process, nominal = self.process, self.process.task.nominal
        if nominal is None:
            raise InvalidRequest("the timer of a schedule recurs", field="every")
        if process.task.missed:
            process.emit("missed", times=process.task.missed, until=nominal)
        state, overlap = process.state, process.state.declaration.overlap
        if state.fan_out is None and (overlap == "allow" or not (state.waiting or await self._goes_on())):
            await self._send(nominal)
        elif overlap == "skip" and state.asked not in state.waiting:
            # While what was asked for by hand waits, others wait behind it, and lose no turn to it.
            process.emit("skipped", nominal=nominal, because="the run before goes on")
        elif len(state.waiting) == MOST_WAITING:
            process.emit("skipped", nominal=nominal, because=f"{MOST_WAITING:,} times wait")
        else:
            enqueue(process, [nominal])
        if queue_of(process.process_id) not in process.timers:
            go_on(process, AT_ONCE if state.fan_out is not None else self._look())

    async def next(self) -> None:
        """Send the next page of a fan-out, or the first time that waits if the run before has ended."""
        state = self.process.state
        if state.fan_out is not None and self.schedule.each is None:
            self._give_up(state.fan_out)
        elif state.fan_out is not None:
            await self._send_page(state.fan_out)
        elif state.waiting:
            if state.declaration.overlap != "allow" and await self._goes_on():
                go_on(self.process, self._look())
                return
            await self._send(state.waiting.pop(0))
        go_on(self.process)

    async def _goes_on(self) -> bool:
        process = self.process
        return await self.runs.goes_on(self.schedule, process.snapshot.process_no, process.state.last)

    def _look(self) -> timedelta:
        """Return when to look again whether the run goes on: the longer it takes, the more seldom."""
        last = self.process.state.last
        taken = AT_ONCE if last is None else self.process.now - last.at
        return min(max(taken / _LOOKS, _SHORTEST_LOOK), _LONGEST_LOOK)

    async def _send(self, nominal: datetime) -> None:
        process = self.process
        if self.schedule.each is not None:
            process.state.fan_out = FanOut(nominal=nominal)
            await self._send_page(process.state.fan_out)
            return
        message = self._post(self.schedule.message(nominal))
        process.emit("sent", nominal=nominal, to=f"{message.namespace}/{message.process_id}")
        process.state.last = Sent(
            nominal=nominal,
            at=process.now,
            task_id=process.task.task_id,
            kind=message.kind,
            namespace=message.namespace,
            process_id=message.process_id,
            idempotency_key=str(message.idempotency_key),
        )

    async def _send_page(self, fan_out: FanOut) -> None:
        found, fan_out.cursor = await self.runs.page(self.schedule, fan_out.cursor)
        for process_id in found:
            self._post(self.schedule.message(fan_out.nominal, to=process_id))
        fan_out.sent += len(found)
        if fan_out.cursor is None:
            self.process.emit("sent", nominal=fan_out.nominal, to=f"{fan_out.sent} processes")
            self.process.state.fan_out = None

    def _give_up(self, fan_out: FanOut) -> None:
        # Newer code sends to one process: the rest of the fan-out has no call any more.
        to = f"{fan_out.sent} processes"
        self.process.emit("sent", nominal=fan_out.nominal, to=to, because="it notifies each no longer")
        self.process.state.fan_out = None

    def _post(self, message: Message) -> Message:
        self.runs.check(message)
        to, key = (message.namespace, message.process_id), message.idempotency_key
        if message.name is None:
            self.process.send_start(*to, message.args, idempotency_key=key)
        else:
            self.process.send(*to, message.name, message.args, idempotency_key=key)
        return message
