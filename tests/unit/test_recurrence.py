"""Recurrences: which time comes next, what becomes of late ones, and when each is due."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, strategies as st

from progressor import Cron, InvalidRequest, Monthly, RRule, SetTimer
from progressor.calendars import wall_clock
from progressor.handlers.timers import _armed
from progressor.model import Task, TaskType
from progressor.timers import recurring
from progressor.timers.recurrence import (
    MOST_CAUGHT_UP,
    MOST_COUNTED,
    Hours,
    Occurrence,
    Recurrence,
    occurrence_of,
)
from tests.model.profiles import profile

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
T0 = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOURLY = Cron("0 * * * *")

SEARCH = profile(quick=100, deep=5000, steps=1)


def runs(occurrence: Occurrence, now: datetime, until: datetime) -> list[tuple[datetime, datetime, int]]:
    """What an engine that begins to work at `now` runs: nominal time, time of the step, missed times."""
    found: list[tuple[datetime, datetime, int]] = []
    following: Occurrence | None = occurrence
    while following is not None:
        at = max(now, following.recurrence.due(following.nominal, "ns", "p", ""))
        wanted = following.wanted(at)
        if wanted is not following:
            following = wanted
            continue
        if at >= until:
            break
        found.append((following.nominal, at, following.missed(at)))
        following = following.next(at)
    return found


@pytest.mark.parametrize(
    ("catch_up", "within", "between", "is_judged"),
    [
        ("one", None, None, False),
        ("all", None, None, False),
        ("skip", None, None, True),
        ("one", DAY, None, True),
        ("all", None, Hours(time(8), time(18), "UTC"), True),
    ],
)
def test_what_may_be_passed_over(catch_up: Any, within: Any, between: Any, is_judged: bool) -> None:
    """Whatever is late for days, or comes outside of its hours; not what has begun before."""
    occurrence = Occurrence(Recurrence(HOURLY, "fixed", catch_up, within, None, between), T0)
    assert occurrence.may_be_passed_over is is_judged
    late = T0 + 9.5 * DAY
    is_run = occurrence.wanted(late) is occurrence and occurrence.opens(late) is None
    assert is_run is not is_judged
    begun = occurrence._replace(begun=True)
    assert not begun.may_be_passed_over
    assert begun.wanted(late) is begun
    assert begun.opens(late) is None


@pytest.mark.parametrize("every", [HOUR, HOURLY])
@pytest.mark.parametrize(
    ("catch_up", "within", "late", "missed"),
    [
        ("one", None, 1, 239),
        ("all", None, 240, 0),
        ("all", DAY, 24, 216),
        ("skip", None, 0, 0),
        ("skip", HOUR / 2, 1, 239),
        ("skip", DAY, 1, 239),
        ("one", 7 * DAY, 1, 239),
    ],
)
def test_ten_days_away(every: Any, catch_up: Any, within: Any, late: int, missed: int) -> None:
    """A worker comes back ten days later: so many late steps, then again on schedule."""
    rule = Recurrence(every, catch_up=catch_up, within=within)
    now = T0 + 239 * HOUR + timedelta(minutes=1)
    found = runs(Occurrence(rule, T0), now, until=T0 + 243 * HOUR)
    overdue = [each for each in found if each[0] <= now]
    assert len(overdue) == late
    assert sum(each[2] for each in overdue) == missed
    assert [each[:2] for each in found[len(overdue) :]] == [(T0 + n * HOUR,) * 2 for n in range(240, 243)]


@SEARCH
@given(
    st.sampled_from([HOUR, HOURLY, DAY, Cron("30 2 * * *", tz="Europe/Berlin"), Monthly(31, at=time(9))]),
    st.sampled_from(["one", "all"]),
    st.timedeltas(timedelta(0), timedelta(days=30)),
    st.timedeltas(timedelta(0), timedelta(hours=3)),
)
def test_none_is_lost_and_none_comes_twice(
    every: Any, catch_up: Any, away: timedelta, busy: timedelta
) -> None:
    """Each nominal time is run or counted as missed, exactly once, whatever is late."""
    rule = Recurrence(every, catch_up=catch_up)
    first = rule.first(T0, None)
    found = runs(Occurrence(rule, first), T0 + away, until=T0 + away + 3 * DAY + busy)
    nominals = [each[0] for each in found]
    assert nominals == sorted(set(nominals))
    if found:
        stood_for = len(found) + sum(each[2] for each in found)
        # Those that the last step stood for, and those behind it, are all there are.
        last = max(found[-1][0], found[-1][1] if catch_up == "one" else found[-1][0])
        assert stood_for == 1 + rule.times(first, last)


def test_the_same_nominal_time_at_each_try() -> None:
    """A late step is for the time that was stored, not for the newest: its keys stay the same."""
    task = Task(
        "ns", "p", 1, TaskType.TIMEOUT, args=Occurrence(Recurrence(HOUR), T0).as_bytes(), running_time=T0
    )
    later = task._replace(running_time=T0 + 5 * HOUR, attempts_count=3)
    assert (task.nominal, task.missed) == (T0, 0)
    assert (later.nominal, later.missed) == (T0, 5)
    assert (
        Task("ns", "p", 1, TaskType.CALL, args=b"1").nominal,
        Task("ns", "p", 1, TaskType.CALL).missed,
    ) == (
        None,
        0,
    )


def test_what_is_caught_up_is_bounded() -> None:
    """A rule of seconds that was away for a day does not run 86,400 times."""
    found = runs(Occurrence(Recurrence(timedelta(seconds=1), catch_up="all"), T0), T0 + DAY, T0 + DAY)
    assert not found
    found = runs(
        Occurrence(Recurrence(timedelta(seconds=1), catch_up="all"), T0),
        T0 + DAY,
        T0 + DAY + timedelta(seconds=3),
    )
    late = [each for each in found if each[1] == T0 + DAY]
    assert len(late) == MOST_CAUGHT_UP
    assert found[len(late)][2] == MOST_COUNTED


def test_drift() -> None:
    """`fixed` counts from the nominal time, `after` from the end of the step."""
    late = T0 + HOUR / 2
    fixed = Occurrence(Recurrence(HOUR), T0).next(late)
    assert fixed is not None
    assert recurring(fixed, "ns", "p", "").at == T0 + HOUR
    after = Occurrence(Recurrence(HOUR, drift="after"), T0).next(late)
    assert after is not None
    timer = recurring(after, "ns", "p", "")
    assert (timer.at, timer.after, after.nominal) == (None, HOUR, late + HOUR)
    spread = Recurrence(HOUR, drift="after", jitter=timedelta(minutes=1))
    moved = recurring(Occurrence(spread, T0 + HOUR), "ns", "p", "")
    assert moved.after is None
    assert moved.at is not None
    assert T0 + HOUR <= moved.at < T0 + HOUR + timedelta(minutes=1)


def test_a_rule_that_ends() -> None:
    """An RRULE with COUNT fires so often; then the timer is no more."""
    rule = Recurrence(RRule("FREQ=DAILY;COUNT=3", T0))
    found = runs(Occurrence(rule, rule.first(T0 - HOUR, None)), T0, T0 + 9 * DAY)
    assert [each[0] for each in found] == [T0, T0 + DAY, T0 + 2 * DAY]
    with pytest.raises(InvalidRequest, match="has no time after"):
        rule.first(T0 + 9 * DAY, None)
    over = Recurrence(RRule("FREQ=DAILY;COUNT=3", T0), catch_up="skip")
    assert Occurrence(over, T0).wanted(T0 + 9 * DAY) is None


@pytest.mark.parametrize("drift", ["fixed", "after"])
def test_the_end_of_time(drift: Any) -> None:
    """A period that leads beyond the year 9998 ends there, and its last step does not fail."""
    last = datetime(9998, 6, 1, tzinfo=UTC)
    rule = Recurrence(timedelta(days=3650), drift=drift)
    assert Occurrence(rule, last).next(last) is None
    assert Occurrence(rule._replace(every=300 * DAY), last).next(last) is None
    with pytest.raises(InvalidRequest, match="has no time after"):
        rule.first(last, None)


def test_the_first_time() -> None:
    """After now, or from a start on; a period begins with the start itself."""
    assert SetTimer(every=HOUR).armed(T0, "ns", "p", "").at == T0 + HOUR
    assert SetTimer(every=HOUR, at=T0).armed(T0 + DAY, "ns", "p", "").at == T0
    assert SetTimer(every=HOUR, after=DAY).armed(T0, "ns", "p", "").at == T0 + DAY
    assert SetTimer(every=HOURLY).armed(T0, "ns", "p", "").at == T0 + HOUR
    assert SetTimer(every=HOURLY, at=T0).armed(T0 + DAY, "ns", "p", "").at == T0
    assert SetTimer(every=HOURLY, at=T0 + timedelta(minutes=1)).armed(T0, "ns", "p", "").at == T0 + HOUR
    assert SetTimer(every=HOUR, drift="after").armed(T0, "ns", "p", "").after == HOUR


def test_a_window_moves_when_it_is_due_and_nothing_else() -> None:
    """Times of the night wait for the opening; there one step stands for them all."""
    window = Hours(time(8), time(18), "Europe/Berlin")
    rule = Recurrence(timedelta(minutes=10), between=window)
    begin = datetime(2026, 7, 1, 15, 30, tzinfo=UTC)  # 17:30 in Berlin
    found = runs(Occurrence(rule, begin), begin, until=begin + 15 * HOUR)
    opening = datetime(2026, 7, 2, 6, tzinfo=UTC)
    step = timedelta(minutes=10)
    assert [each[1] for each in found[:5]] == [
        begin,
        begin + step,
        begin + 2 * step,
        opening,
        opening + step,
    ]
    assert found[3] == (begin + timedelta(minutes=30), opening, 84)
    at_three = SetTimer(
        at=datetime(2026, 7, 1, 1, tzinfo=UTC), between=(time(8), time(18), "Europe/Berlin")
    )
    assert at_three.armed(T0, "ns", "p", "").at == datetime(2026, 7, 1, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("opens", "closes", "asked", "moved", "closed_since"),
    [
        (8, 18, 12, 12, 12),
        (8, 18, 8, 8, 8),
        (8, 18, 18, 32, 18),
        (8, 18, 3, 8, -6),
        (22, 6, 23, 23, 23),
        (22, 6, 3, 3, 3),
        (22, 6, 6, 22, 6),
        (22, 6, 12, 22, 6),
    ],
)
def test_windows(opens: int, closes: int, asked: int, moved: int, closed_since: int) -> None:
    """By day and over midnight: it is open from the opening on, and no more at the closing."""
    window = Hours(time(opens), time(closes), "UTC")
    midnight = datetime(2026, 7, 1, tzinfo=UTC)
    assert window.moved(midnight + asked * HOUR) == midnight + moved * HOUR
    assert window.closed_since(midnight + asked * HOUR) == midnight + closed_since * HOUR


@SEARCH
@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
    st.times(),
    st.times(),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
)
def test_a_window_is_open_where_it_moves_to(naive: datetime, opens: time, closes: time, tz: str) -> None:
    """Also on the days on which a clock changes; and it never moves back."""
    if opens == closes:
        return
    moment, window = naive.replace(tzinfo=UTC), Hours(opens, closes, tz)
    moved = window.moved(moment)
    assert moment <= moved <= moment + 2 * DAY
    assert window.closed_since(moment) <= moment
    assert window.moved(window.closed_since(moment)) >= window.closed_since(moment)


def test_within_counts_from_when_it_was_due() -> None:
    """A time that waited for the opening of its window is not late."""
    window = Hours(time(8), time(18), "UTC")
    rule = Recurrence(Cron("0 3 * * *"), within=HOUR, between=window)
    night = datetime(2026, 7, 1, 3, tzinfo=UTC)
    opening = datetime(2026, 7, 1, 8, tzinfo=UTC)
    here = Occurrence(rule, night)
    assert here.wanted(opening + HOUR / 2) is here
    assert here.wanted(opening + 2 * HOUR) == Occurrence(rule, night + DAY, passed=1)


def test_jitter_is_stable_and_even() -> None:
    """Midnight timers spread over five minutes, each always by the same part; the nominal time is exact."""
    jitter, nominal = timedelta(minutes=5), datetime(2026, 7, 1, tzinfo=UTC)
    rule = Recurrence(Cron("0 0 * * *"), jitter=jitter)
    due = [rule.due(nominal, "ns", f"p{place}", "") for place in range(20_000)]
    assert due[:100] == [rule.due(nominal, "ns", f"p{place}", "") for place in range(100)]
    assert all(nominal <= each < nominal + jitter for each in due)
    counts = Counter((each - nominal) // timedelta(seconds=30) for each in due)
    # Chi-squared with 9 degrees of freedom: 27.9 is the 0.1 % point. The hash is fixed, so is the result.
    assert sum((counts[slot] - 2_000) ** 2 / 2_000 for slot in range(10)) < 27.9
    other_day = [rule.due(nominal + DAY, "ns", f"p{place}", "") - DAY for place in range(100)]
    assert other_day != due[:100]


def test_jitter_ends_with_the_hours() -> None:
    """Nobody is called after the closing, and the last times of a day are spread over what is left."""
    rule = Recurrence(DAY, jitter=HOUR, between=Hours(time(8), time(18), "UTC"))
    nominal = datetime(2026, 7, 1, 17, 50, tzinfo=UTC)
    due = {rule.due(nominal, "ns", f"p{place}", "") for place in range(1_000)}
    assert nominal <= min(due) < max(due) < nominal + timedelta(minutes=10)
    assert len(due) == 1_000
    night = {rule.due(nominal + HOUR, "ns", f"p{place}", "").time() for place in range(1_000)}
    assert time(8) <= min(night) < time(8, 5) < time(8, 55) < max(night) < time(9)


@pytest.mark.parametrize(
    ("given_members", "said"),
    [
        ({"every": 3600}, "every must be a timedelta, Cron, RRule or Monthly, not int"),
        ({"every": timedelta(0)}, "every must be from 1 ms"),
        ({"every": timedelta(days=4000)}, "every must be from 1 ms"),
        ({"every": HOUR, "remove": True}, "takes no every="),
        ({"every": HOUR, "at": T0, "after": HOUR}, "not both"),
        ({}, "needs exactly one of at= and after=, or every="),
        ({"after": HOUR, "catch_up": "all"}, "need every="),
        ({"after": HOUR, "within": HOUR}, "need every="),
        ({"every": HOUR, "catch_up": "some"}, "catch_up must be"),
        ({"every": HOUR, "drift": "up"}, "drift must be"),
        ({"every": HOURLY, "drift": "after"}, "needs every=timedelta"),
        ({"every": HOUR, "drift": "after", "within": HOUR}, "takes no catch_up, no within"),
        ({"every": HOUR, "within": timedelta(0)}, "within must be a timedelta above 0"),
        ({"every": HOUR, "jitter": 5}, "jitter must be a timedelta above 0"),
        ({"every": HOUR, "jitter": DAY}, "jitter must not be longer than"),
        ({"every": HOURLY, "jitter": timedelta(minutes=61)}, "jitter must not be longer than"),
        ({"after": HOUR, "between": (time(8), time(8))}, "two different times"),
        ({"after": HOUR, "between": time(8)}, "between must be two times"),
        ({"after": HOUR, "between": ("8", "25:00")}, "wrong time"),
        ({"after": HOUR, "between": (time(8, tzinfo=UTC), time(9))}, "without tzinfo"),
        ({"after": HOUR, "between": (time(8), time(9), "Mars")}, "no time zone 'Mars'"),
    ],
)
def test_what_is_refused(given_members: dict[str, Any], said: str) -> None:
    """Before anything is set."""
    with pytest.raises(InvalidRequest, match=said):
        SetTimer(**given_members)


@pytest.mark.parametrize(
    "timer",
    [
        SetTimer(every=HOUR, at=T0, catch_up="all", within=DAY),
        SetTimer(every=HOUR, drift="after", jitter=timedelta(seconds=1.5)),
        SetTimer(every=Cron("0 9 1 * *", tz="Europe/Berlin"), between=(time(8), time(18, 30))),
        SetTimer(every=RRule("FREQ=MONTHLY;BYMONTHDAY=-1", T0), catch_up="skip"),
        SetTimer(every=Monthly(31, at=time(9), tz="Asia/Tokyo"), within=HOUR),
    ],
)
def test_stored_and_read_again(timer: SetTimer) -> None:
    """As bytes of the task, as each next occurrence."""
    stored = timer.armed(T0, "ns", "p", "").occurrence
    assert stored is not None
    occurrence = occurrence_of(stored)
    assert occurrence.as_bytes() == stored
    following = occurrence.next(T0 + 3 * HOUR)
    assert following is not None
    assert occurrence_of(following.as_bytes()) == following


def test_what_the_first_releases_stored() -> None:
    """A nominal time in UTC has the offset of its clock once it is read; what was begun was not noted."""
    stored = SetTimer(every=Monthly(1, tz="Europe/Berlin")).armed(T0, "ns", "p", "").occurrence
    assert stored is not None
    assert b'"nominal":"2026-04-01T00:00:00+02:00"' in stored
    old = stored.replace(b"2026-04-01T00:00:00+02:00", b"2026-03-31T22:00:00Z").replace(
        b',"begun":false', b""
    )
    assert occurrence_of(old).as_bytes() == stored


def test_an_ended_rule_is_not_begun_anew_by_its_own_step() -> None:
    """Not even by the time that it has ended with, fired by hand before it comes."""
    rule = RRule("FREQ=DAILY;COUNT=1", T0 + DAY)
    stored = SetTimer(every=rule).armed(T0, "ns", "p", "").occurrence
    task = Task("ns", "p", 1, TaskType.TIMEOUT, args=stored, running_time=T0)
    with pytest.raises(InvalidRequest, match="has no time after"):
        _armed(task, (SetTimer(every=rule),), T0)


NINE: list[Any] = [
    Cron("0 9 * * *", tz="Asia/Almaty"),
    RRule("FREQ=DAILY;BYHOUR=9", datetime(2024, 1, 1, 3, tzinfo=UTC), tz="Asia/Almaty"),
]


@pytest.mark.parametrize("rule", NINE)
@given(old=st.integers(-6, 6), hours=st.integers(-3, 3), late=st.integers(0, 5))
def test_a_zone_that_changes_its_clock(rule: Any, old: int, hours: int, late: int) -> None:
    """A time that was stored before comes once, at its moment, and the next one by the new clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wall_clock, "_zone", lambda _: timezone(timedelta(hours=old)))
        stored = SetTimer(every=rule).armed(datetime(2024, 2, 29, 16, tzinfo=UTC), "ns", "p", "").occurrence
        patch.setattr(wall_clock, "_zone", lambda _: timezone(timedelta(hours=old + hours)))
        assert stored is not None
        occurrence = occurrence_of(stored)
        at = occurrence.nominal + late * HOUR
        following = occurrence.next(at)
        assert occurrence.missed(at) == 0
    assert occurrence.nominal.isoformat()[:19] == "2024-03-01T09:00:00"
    assert following is not None
    assert following.nominal == occurrence.nominal + DAY - hours * HOUR


def test_only_the_engine_says_what_a_task_keeps() -> None:
    """Else a text that is no occurrence would be found when the timer fires, at each try."""
    with pytest.raises(TypeError, match="occurrence"):
        SetTimer(after=timedelta(hours=1), occurrence=b"soon")  # type: ignore[call-arg]
