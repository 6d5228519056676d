"""The changes of a process's timers, as handlers and clients ask for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Final, TypedDict, Unpack

from progressor.calendars import Rule, json_of
from progressor.errors import InvalidRequest
from progressor.inputs import LAST_YEAR, LONGEST_DELAY, can_be_stored, check_timer, in_utc
from progressor.timers.recurrence import (
    CatchUp,
    Drift,
    Occurrence,
    Recurrence,
    check_spread,
    recurrence_of,
    spread,
)

KEPT: Final = b""
"""In place of an occurrence: that of the timer which is replaced, to be run however late."""
Between = tuple[time, time] | tuple[time, time, str]
"""The opening and the closing of a window of the day, and its time zone."""


class Recurring(TypedDict, total=False):
    """The keywords of SetTimer by which a timer recurs, or is moved within its day."""

    every: timedelta | Rule | None
    drift: Drift
    catch_up: CatchUp
    within: timedelta | None
    jitter: timedelta | None
    between: Between | None


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Set the process's timer of this name: at a time (aware datetime), or after a delay from the commit.

    It replaces the one that has the name; '' is the timer without a name. With `remove=True` the process is
    removed at that time; otherwise its timeout handler runs.

    `every` makes it recur: a timedelta, Cron, RRule or Monthly. Then `at` or `after` is its first time, or
    the time from which the rule counts; without either it begins with the first one to come. `drift`,
    `catch_up` and `within` say what becomes of late and missed times. `jitter` delays it by up to so much,
    and `between` to the next opening of a window of the day: two times, and a time zone (default: that of
    the rule, else UTC). With either, `after` counts from the begin of the step; without `every` they count
    once, as it is set.

    Raises InvalidRequest unless exactly one of `at` and `after` is given, or `every` with at most one of
    them; for a time without a zone or outside the years 2 to 9998, a delay of more than 365,000 days, a
    name that no timer can have, and a rule that has no times.
    """

    at: datetime | None = None
    after: timedelta | None = None
    remove: bool = False
    name: str = ""
    every: timedelta | Rule | None = None
    drift: Drift = "fixed"
    catch_up: CatchUp = "one"
    within: timedelta | None = None
    jitter: timedelta | None = None
    between: Between | None = None
    occurrence: bytes | None = field(default=None, init=False)
    """What its task keeps of a recurring timer; only the engine sets it (`keeping`)."""

    def __post_init__(self) -> None:
        check_timer(self.name)
        if self.after is not None:
            if self.at is not None:
                raise InvalidRequest("SetTimer takes at= or after=, not both", field="at")
            _check_delay(self.after)
        elif self.at is not None:
            object.__setattr__(self, "at", _checked_time(self.at))
        elif self.every is None:
            raise InvalidRequest("SetTimer needs exactly one of at= and after=, or every=", field="at")
        if self.every is not None:
            if self.remove:
                raise InvalidRequest("remove=True takes no every=: it runs once", field="remove")
            self.recurrence()
        elif self.drift != "fixed" or self.catch_up != "one" or self.within is not None:
            raise InvalidRequest("drift=, catch_up= and within= need every=", field="every")
        elif self.jitter is not None or self.between is not None:
            check_spread(self.jitter, self.between, None)

    @property
    def is_armed(self) -> bool:
        """True if `at` or `after` alone says when it is due."""
        return self.every is None and self.jitter is None and self.between is None

    def as_json(self) -> dict[str, Any]:
        """Return it as a request states it, without its name; durations are seconds.

        Of members that older releases lack it has those that are set.
        """
        given: dict[str, Any] = {"at": self.at, "after": _seconds(self.after), "remove": self.remove}
        if self.every is not None:
            given |= {"every": json_of(self.every), "drift": self.drift, "catch_up": self.catch_up}
        between = check_spread(self.jitter, self.between, self.every)
        late = {"within": _seconds(self.within), "jitter": _seconds(self.jitter), "between": between}
        return given | {name: value for name, value in late.items() if value is not None}

    def armed(self, now: datetime, *names: str) -> SetTimer:
        """Return the timer as it is stored: due at a time, or after a delay from the commit.

        `now` is when the step began; `names` tell this timer from all others, for its jitter.
        InvalidRequest if its rule has no time any more.
        """
        if self.is_armed:
            return self
        start = self.at if self.after is None else now + self.after
        if self.every is None:
            nominal = now if start is None else start
            due = spread(nominal, self.jitter, check_spread(self.jitter, self.between, None), *names)
            return SetTimer(at=due, remove=self.remove, name=self.name)
        rule = self.recurrence()
        return recurring(Occurrence(rule, rule.first(now, start)), *names, counts=start is None)

    def recurrence(self) -> Recurrence:
        """Return its rule, with what becomes of late times; InvalidRequest if it does not recur."""
        window = check_spread(self.jitter, self.between, self.every)
        return recurrence_of(self.every, self.drift, self.catch_up, self.within, self.jitter, window)


def timer_of(
    at: datetime | None, after: timedelta | None, remove: bool, name: str, **recurrence: Unpack[Recurring]
) -> SetTimer:
    """Return a new timer; InvalidRequest as of SetTimer."""
    if at is None and type(after) is timedelta and type(name) is str and not remove and not recurrence:
        return _delayed(after, name)
    return SetTimer(at, after, remove, name, **recurrence)


# A handler has but a few delays, and its timers come again and again.
@lru_cache(maxsize=256)
def _delayed(after: timedelta, name: str) -> SetTimer:
    return SetTimer(after=after, name=name)


def recurring(
    occurrence: Occurrence, *names: str, counts: bool = True, since: datetime | None = None
) -> SetTimer:
    """Return the timer of an occurrence; `names`, for its jitter, end with that of the timer.

    With `counts`, one that drifts is due after a delay from the commit. It is not due before `since`.
    """
    rule, name, kept = occurrence.recurrence, names[-1], occurrence.as_bytes()
    is_plain = rule.jitter is None and rule.between is None
    if counts and is_plain and rule.drift == "after" and isinstance(rule.every, timedelta):
        return keeping(SetTimer(after=rule.every, name=name), kept)
    return keeping(SetTimer(at=rule.due(occurrence.nominal, *names, since=since), name=name), kept)


def keeping(timer: SetTimer, occurrence: bytes | None) -> SetTimer:
    """Return this new timer, with what its task keeps of an occurrence: unread, as it may be newer."""
    object.__setattr__(timer, "occurrence", occurrence)
    return timer


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _checked_time(moment: object) -> datetime:
    at = in_utc(moment)
    if at is None:
        raise InvalidRequest("SetTimer.at must be an aware datetime (with tzinfo)", field="at")
    if not can_be_stored(at):
        raise InvalidRequest(f"SetTimer.at must lie before {LAST_YEAR}", field="at")
    return at


def _check_delay(after: object) -> None:
    if not isinstance(after, timedelta):
        raise InvalidRequest("SetTimer.after must be a timedelta", field="after")
    if not -LONGEST_DELAY <= after <= LONGEST_DELAY:
        raise InvalidRequest(f"SetTimer.after must be at most {LONGEST_DELAY.days} days", field="after")


@dataclass(frozen=True, slots=True)
class UnsetTimer:
    """Cancel the process's timer of this name, if it has it; '' is the timer without a name."""

    name: str = ""
    is_armed: ClassVar[bool] = True
    """As of SetTimer: nothing is left to be found out."""

    def __post_init__(self) -> None:
        check_timer(self.name)

    def armed(self, now: datetime, *names: str) -> UnsetTimer:  # noqa: ARG002 - as of SetTimer
        """Return it as it is."""
        return self


TimerChange = SetTimer | UnsetTimer
