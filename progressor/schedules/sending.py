"""The sending of a schedule: what its timers do in a step.

Rule: a nominal time is sent in the step that notes it, under a key that is made of it. So it is sent once,
however many workers there are, and a backfill of what was sent changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from progressor.errors import InvalidRequest
from progressor.handlers.schedules import Schedule
from progressor.messages.message import Message
from progressor.model import ProcessStatus
from progressor.schedules.declared import take
from progressor.schedules.runs import ScheduleRuns
from progressor.schedules.state import Declaration, FannedOut, FanOut, Sent
from progressor.schedules.waiting import AT_ONCE, Scheduled, enqueue_or_skip, go_on, queue_of

_SHORTEST_LOOK, _LONGEST_LOOK = timedelta(milliseconds=100), timedelta(minutes=1)
# Of the time that a run has taken, the part after which it is looked at again.
_LOOKS = 4


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
        await self._declare_repaired()
        if process.task.missed:
            process.emit("missed", times=process.task.missed, until=nominal)
        state, overlap = process.state, process.state.declaration.overlap
        if state.fan_out is None and (overlap == "allow" or not (state.waiting or await self._goes_on())):
            await self._send(nominal)
        elif overlap == "skip" and state.asked not in state.waiting:
            # While what was asked for by hand waits, others wait behind it, and lose no turn to it.
            process.emit("skipped", nominal=nominal, because="the run before goes on")
        else:
            enqueue_or_skip(process, nominal)
        if queue_of(process.process_id) not in process.timers:
            go_on(process, AT_ONCE if state.fan_out is not None else self._look())

    async def next(self) -> None:
        """Send the next page of a fan-out, or the first time that waits if the run before has ended."""
        await self._declare_repaired()
        state = self.process.state
        if state.fan_out is not None and self.schedule.each is None:
            if state.declaration != Declaration.of(self.schedule):
                # Of other code, whose workers go on with it.
                go_on(self.process, _SHORTEST_LOOK)
                return
            # This code sends to one process: the rest of the fan-out has no call any more.
            self._end(state.fan_out, because="it notifies each no longer")
        elif state.fan_out is not None:
            await self._send_page(state.fan_out)
        elif state.waiting:
            if state.declaration.overlap != "allow" and await self._goes_on():
                go_on(self.process, self._look())
                return
            await self._send(state.waiting.pop(0))
        go_on(self.process)

    async def _declare_repaired(self) -> None:
        # A declaration that came while it was broken was refused; the first step afterwards takes it.
        process = self.process
        was_broken = process.previous_status is ProcessStatus.ERROR
        if was_broken and process.status_changed_at > process.state.declared_at:
            await take(process, Declaration.of(self.schedule), self.runs)

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
        process.emit(
            "sent", nominal=nominal, to=f"{message.namespace}/{message.process_id}", kind=message.kind
        )
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
            self._end(fan_out)

    def _end(self, fan_out: FanOut, **why: str) -> None:
        process, to = self.process, f"{fan_out.sent} processes"
        process.emit("sent", nominal=fan_out.nominal, to=to, **why)
        process.state.fan_out = None
        process.state.fanned_out = FannedOut(nominal=fan_out.nominal, at=process.now, sent=fan_out.sent)

    def _post(self, message: Message) -> Message:
        self.runs.check(message)
        to, key = (message.namespace, message.process_id), message.idempotency_key
        if message.name is None:
            self.process.send_start(*to, message.args, idempotency_key=key)
        else:
            self.process.send(*to, message.name, message.args, idempotency_key=key)
        return message
