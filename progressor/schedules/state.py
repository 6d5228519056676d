"""The state of a schedule, and the arguments of its calls."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from progressor.handlers.schedules import Overlap, Schedule
from progressor.handlers.timers import TimerArgs


class Declaration(BaseModel):
    """A schedule as code declares it, as far as it is data: its timer, and for people where it sends."""

    timer: TimerArgs
    sends: str
    overlap: Overlap

    @classmethod
    def of(cls, schedule: Schedule) -> Declaration:
        """Return the declaration of a schedule."""
        timer = TimerArgs(timer=schedule.process_id, **schedule.timer.as_json())
        declared = cls(timer=timer, sends=schedule.target, overlap=schedule.overlap)
        # As it is stored: the two are compared.
        return cls.model_validate_json(declared.model_dump_json())


class Sent(BaseModel):
    """The last message to one process: there it is seen whether the run goes on."""

    nominal: AwareDatetime
    at: AwareDatetime
    task_id: int
    kind: Literal["notify", "start"]
    namespace: str
    process_id: str
    idempotency_key: str


class FanOut(BaseModel):
    """A time that is being sent to each of many processes, a page in a step."""

    nominal: AwareDatetime
    cursor: str | None = None
    sent: int = 0


class FannedOut(BaseModel):
    """The last time that was sent to each of many processes, when the last of them was notified."""

    nominal: AwareDatetime
    at: AwareDatetime
    sent: int


class ScheduleState(BaseModel):
    """The state of a schedule.

    `replaced` is the declaration before the present one. `waiting` are nominal times that are sent once the
    run before has ended; what was triggered or backfilled begins there too, and `asked` is the last of
    these.
    """

    declaration: Declaration
    declared_at: AwareDatetime
    replaced: Declaration | None = None
    paused_at: AwareDatetime | None = None
    reason: str | None = None
    waiting: list[AwareDatetime] = []
    asked: AwareDatetime | None = None
    fan_out: FanOut | None = None
    last: Sent | None = None
    fanned_out: FannedOut | None = None


class Span(BaseModel):
    """The times of a backfill: from `since` on, and before `until` (default: now)."""

    model_config = ConfigDict(extra="forbid")

    since: AwareDatetime
    until: AwareDatetime | None = None
