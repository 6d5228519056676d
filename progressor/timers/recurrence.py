"""Recurring timers: the rule by which one comes again, its nominal times, and those that were missed. Pure.

Rule: a nominal time never changes once it is stored: a window and a jitter move only when it is due. The
step of a timer arms the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple, get_args

from pydantic_core import from_json, to_json

from progressor.calendars import Cron, Monthly, RRule, Rule, json_of, rule_of
from progressor.calendars.rules import last_shown, nominal_of, on_clock
from progressor.calendars.wall_clock import moment_of, shown, zone_of
from progressor.errors import InvalidRequest
from progressor.inputs import LONGEST_DELAY, can_be_stored

Drift = Literal["fixed", "after"]
CatchUp = Literal["one", "all", "skip"]

MOST_CAUGHT_UP: Final = 1_000
"""Times in a row that `all` catches up; what is left then is passed over."""
MOST_COUNTED: Final = 1_000
"""Missed times that are counted."""
LONGEST_EVERY: Final = timedelta(days=3650)

_SOON = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_NOTHING = timedelta()
_SHORTEST = timedelta(milliseconds=1)


class Hours(NamedTuple):
    """The hours of a day in which steps may begin, in a time zone; over midnight if it closes first."""

    opens: time
    closes: time
    tz: str

    def moved(self, moment: datetime) -> datetime:
        """Return the moment if the window is open then, else its next opening, in UTC."""
        return moment if self._is_open(moment) else self._next(self.opens, moment)

    def closed_since(self, moment: datetime) -> datetime:
        """Return the moment if the window is open then, else its last closing, in UTC."""
        if self._is_open(moment):
            return moment
        wall = shown(moment, zone_of(self.tz))
        day = wall.date() if wall.time() >= self.closes else wall.date() - _DAY
        return min(moment_of(datetime.combine(day, self.closes), zone_of(self.tz)), moment)

    def closing(self, moment: datetime) -> datetime:
        """Return the closing after a moment at which the window is open, in UTC."""
        return self._next(self.closes, moment)

    def _next(self, at: time, moment: datetime) -> datetime:
        wall = shown(moment, zone_of(self.tz))
        day = wall.date() if wall.time() < at else wall.date() + _DAY
        # Where the clock is set back over that time, it has been before.
        return max(moment_of(datetime.combine(day, at), zone_of(self.tz)), moment)

    def _is_open(self, moment: datetime) -> bool:
        now = shown(moment, zone_of(self.tz)).time()
        if self.opens < self.closes:
            return self.opens <= now < self.closes
        return now >= self.opens or now < self.closes


class Recurrence(NamedTuple):
    """The rule by which a timer comes again, and what becomes of the times that were missed."""

    every: timedelta | Rule
    drift: Drift = "fixed"
    catch_up: CatchUp = "one"
    within: timedelta | None = None
    jitter: timedelta | None = None
    between: Hours | None = None

    def first(self, now: datetime, start: datetime | None) -> datetime:
        """Return the first nominal time: after now, or from `start` on; InvalidRequest if there is none."""
        moment = now if start is None else start - _SOON
        if isinstance(self.every, timedelta):
            found = _later(now, self.every) if start is None else start
        else:
            found = self.every.after(moment)
        if found is None:
            raise InvalidRequest(f"{self.every!r} has no time after {moment.isoformat()}", field="every")
        return on_clock(self.every, found)

    def after(self, nominal: datetime, moment: datetime) -> datetime | None:
        """Return the first nominal time after both; None if the rule has ended."""
        last = max(last_shown(self.every, nominal), moment)
        if isinstance(self.every, timedelta):
            return _later(nominal, ((last - nominal) // self.every + 1) * self.every)
        found = self.every.after(last)
        return None if found is None else on_clock(self.every, found)

    def due(self, nominal: datetime, *names: str, since: datetime | None = None) -> datetime:
        """Return when a nominal time is due; a timer of these names has the same jitter each time."""
        return spread(nominal, self.jitter, self.between, *names, since=since)

    def oldest(self, now: datetime) -> datetime | None:
        """Return the oldest nominal time that may still be run; None if `within` sets no bound."""
        if self.within is None:
            return None
        oldest = now - self.within - (self.jitter or _NOTHING)
        return oldest if self.between is None else self.between.closed_since(oldest)

    def newest(self, nominal: datetime, now: datetime, oldest: datetime | None) -> datetime | None:
        """Return the time to run where late ones are skipped: `nominal` or a later one, None if it ended.

        It is the newest that has come, if that is not older than `oldest`, else the next to come. Without
        `oldest` only `nominal` may be late, until the next one has come.
        """
        found, following = nominal, self.after(nominal, nominal)
        for _ in range(MOST_COUNTED):
            if following is None or following > now:
                return found if oldest is None or found >= oldest else following
            if oldest is None:
                break
            found, following = following, self.after(following, max(following, oldest - _SOON))
        # Of very many the newest is not searched for: the next one is near.
        return self.after(nominal, now)

    def times(self, nominal: datetime, until: datetime) -> int:
        """Return the number of nominal times after `nominal` and up to `until`, at most MOST_COUNTED."""
        if isinstance(self.every, timedelta):
            return min(max((until - nominal) // self.every, 0), MOST_COUNTED)
        found, nominal = 0, last_shown(self.every, nominal)
        while found < MOST_COUNTED and (following := self.every.after(nominal)) and following <= until:
            nominal, found = following, found + 1
        return found


class Occurrence(NamedTuple):
    """One time of a recurrence, as the task of its timer keeps it.

    `nominal` has the offset that the clock of the rule has then, by what was known when it was computed.
    `passed` times before it were passed over without a step; `caught_up` in a row before it were overdue.
    With `begun` it is run however late: its step was tried before, or is fired by hand.
    """

    recurrence: Recurrence
    nominal: datetime
    passed: int = 0
    caught_up: int = 0
    begun: bool = False

    @property
    def may_be_passed_over(self) -> bool:
        """True if no step of it begins where it is late, or outside of its hours."""
        rule = self.recurrence
        is_judged = rule.within is not None or rule.between is not None or rule.catch_up == "skip"
        return is_judged and not self.begun

    def wanted(self, now: datetime) -> Occurrence | None:
        """Return the occurrence to run at this time: itself, or a later one; None if the rule has ended.

        Those that are too late are passed over. Late is what is run after its due time.
        """
        if self.begun:
            return self
        rule, nominal, oldest = self.recurrence, self.nominal, self.recurrence.oldest(now)
        later: datetime | None = nominal
        if rule.catch_up == "skip":
            later = rule.newest(nominal, now, oldest)
        elif oldest is not None and nominal < oldest:
            later = rule.after(nominal, oldest - _SOON)
        if later is None or later == nominal:
            return None if later is None else self
        passed = self.passed + 1 + rule.times(nominal, later - _SOON)
        return Occurrence(rule, later, min(passed, MOST_COUNTED), self.caught_up)

    def opens(self, now: datetime) -> datetime | None:
        """Return the opening for which its step has to wait; None if that may begin now."""
        between = self.recurrence.between
        if self.begun or between is None:
            return None
        opens = between.moved(now)
        return opens if opens > now else None

    def next(self, now: datetime) -> Occurrence | None:
        """Return the occurrence that follows once the step of this one has succeeded; None: the rule ended.

        `now` is when that step began.
        """
        rule, nominal = self.recurrence, self.nominal
        if rule.drift == "after" and isinstance(rule.every, timedelta):
            later = _later(now, rule.every)
            return None if later is None else Occurrence(rule, later)
        following = rule.after(nominal, nominal)
        if following is None:
            return None
        if following > now:
            return Occurrence(rule, following)
        if rule.catch_up == "one":
            later = rule.after(nominal, now)
            return None if later is None else Occurrence(rule, later)
        if self.caught_up + 1 < MOST_CAUGHT_UP:
            return Occurrence(rule, following, caught_up=self.caught_up + 1).wanted(now)
        later = rule.after(nominal, now)
        return None if later is None else Occurrence(rule, later, rule.times(nominal, now))

    def missed(self, now: datetime) -> int:
        """Return the number of times that this step stands for beside its own, at most MOST_COUNTED."""
        rule = self.recurrence
        if rule.catch_up != "one" or rule.drift == "after":
            return self.passed
        return min(self.passed + rule.times(self.nominal, now), MOST_COUNTED)

    def as_bytes(self) -> bytes:
        """Return it as it is stored: JSON."""
        within, jitter, between = self.recurrence[3:]
        return to_json(
            {
                "every": json_of(self.recurrence.every),
                "drift": self.recurrence.drift,
                "catch_up": self.recurrence.catch_up,
                "within": None if within is None else within.total_seconds(),
                "jitter": None if jitter is None else jitter.total_seconds(),
                "between": None if between is None else list(between),
                "nominal": self.nominal.isoformat(),
                "passed": self.passed,
                "caught_up": self.caught_up,
                "begun": self.begun,
            }
        )


def as_begun(stored: bytes | None) -> bytes | None:
    """Return the stored form of an occurrence as begun, whatever its rule; save_result.sql does so too."""
    return None if stored is None else stored.replace(b'"begun":false', b'"begun":true')


@lru_cache(maxsize=1024)
def occurrence_of(stored: bytes) -> Occurrence:
    """Return an occurrence from its stored form; InvalidRequest if this release cannot read that."""
    try:
        given = from_json(stored)
        every = rule_of(given["every"])
        return Occurrence(
            Recurrence(
                every,
                given["drift"],
                given["catch_up"],
                _duration(given["within"]),
                _duration(given["jitter"]),
                None if given["between"] is None else window_of(given["between"]),
            ),
            nominal_of(every, given["nominal"]),
            given["passed"],
            given["caught_up"],
            # The first releases with recurring timers did not note it.
            given.get("begun", False),
        )
    except InvalidRequest:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequest(
            f"a recurring timer is stored in a form of another release: {error!r}"
        ) from None


def spread(
    nominal: datetime,
    jitter: timedelta | None,
    between: Hours | None,
    *names: str,
    since: datetime | None = None,
) -> datetime:
    """Return a time, moved into the window, and by a part of the jitter that depends on names and time.

    It is not before `since`. The jitter ends with the window.
    """
    due = nominal if since is None else max(nominal, since)
    if between is not None:
        due = between.moved(due)
    if jitter is None:
        return due
    if between is not None:
        jitter = min(jitter, between.closing(due) - due)
    text = "\0".join((*names, nominal.astimezone(UTC).isoformat()))
    part = int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) / 2**64
    return due + jitter * part


def recurrence_of(
    every: Any, drift: Any, catch_up: Any, within: Any, jitter: Any, between: Hours | None
) -> Recurrence:
    """Return a checked recurrence; InvalidRequest names the argument that cannot be used."""
    if isinstance(every, timedelta):
        if not _SHORTEST <= every <= LONGEST_EVERY:
            raise InvalidRequest(
                f"every must be from 1 ms to {LONGEST_EVERY.days} days, not {every}", field="every"
            )
    elif not isinstance(every, Cron | RRule | Monthly):
        raise InvalidRequest(
            f"every must be a timedelta, Cron, RRule or Monthly, not {type(every).__name__}", field="every"
        )
    if drift not in get_args(Drift):
        raise InvalidRequest("drift must be 'fixed' or 'after'", field="drift")
    if catch_up not in get_args(CatchUp):
        raise InvalidRequest("catch_up must be 'one', 'all' or 'skip'", field="catch_up")
    if drift == "after" and not isinstance(every, timedelta):
        raise InvalidRequest(
            "drift='after' needs every=timedelta: a calendar does not drift", field="drift"
        )
    if drift == "after" and (catch_up != "one" or within is not None):
        raise InvalidRequest(
            "drift='after' misses no times: it takes no catch_up, no within", field="drift"
        )
    _check_duration("within", within)
    if jitter is not None and jitter > _shortest_gap(every):
        raise InvalidRequest(
            "jitter must not be longer than the time from one time of every to the next", field="jitter"
        )
    return Recurrence(every, drift, catch_up, within, jitter, between)


def _shortest_gap(every: timedelta | Rule) -> timedelta:
    """Return a period, or the shortest of the first ten gaps of a rule of the calendar."""
    if isinstance(every, timedelta):
        return every
    found, gap = every.after(_LONG_AGO), LONGEST_EVERY
    for _ in range(10):
        following = None if found is None else every.after(found)
        if found is None or following is None:
            break
        found, gap = following, min(gap, following - found)
    return gap


def check_spread(jitter: Any, between: Any, every: Any) -> Hours | None:
    """Return the window of a timer, if it has one; InvalidRequest if that or its jitter cannot be used."""
    _check_duration("jitter", jitter)
    if between is None or isinstance(between, Hours):
        return between
    if not isinstance(between, tuple | list) or len(between) not in (2, 3):
        raise InvalidRequest("between must be two times of a day: (time(8), time(18))", field="between")
    return window_of([*between, getattr(every, "tz", "UTC")][:3])


def window_of(given: Sequence[Any]) -> Hours:
    """Return a window from two times of a day and a zone; InvalidRequest if it is none."""
    try:
        opens, closes = (time.fromisoformat(each) if isinstance(each, str) else each for each in given[:2])
    except ValueError as error:
        raise InvalidRequest(f"between has a wrong time: {error}", field="between") from None
    if not isinstance(opens, time) or not isinstance(closes, time) or opens == closes:
        raise InvalidRequest("between must be two different times of a day", field="between")
    if opens.tzinfo is not None or closes.tzinfo is not None:
        raise InvalidRequest("between has times without tzinfo: name the zone third", field="between")
    zone_of(given[2])
    return Hours(opens, closes, given[2])


def _check_duration(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, timedelta) or not _NOTHING < value <= LONGEST_DELAY:
        raise InvalidRequest(
            f"{name} must be a timedelta above 0, and at most {LONGEST_DELAY.days} days", field=name
        )


def _later(moment: datetime, by: timedelta) -> datetime | None:
    """Return a moment so much later; None if no timer can have it."""
    try:
        found = moment + by
    except OverflowError:
        return None
    return found if can_be_stored(found) else None


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
