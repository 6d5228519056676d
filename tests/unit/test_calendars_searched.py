"""Calendar rules in twenty zones and twenty years, beside other searches for the same times."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from itertools import dropwhile, islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from dateutil.rrule import rrulestr
from hypothesis import assume, given, strategies as st

from progressor import Cron, InvalidRequest, Monthly, RRule
from progressor.calendars import Rule, json_of, rule_of
from progressor.calendars.periods import Periods
from progressor.calendars.rrule_text import read
from tests.model.profiles import profile

ZONES = [
    *["UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Los_Angeles"],
    *["America/Sao_Paulo", "America/Havana", "America/Santiago", "America/Nuuk", "Africa/Cairo"],
    *["Africa/Casablanca", "Asia/Kathmandu", "Asia/Beirut", "Asia/Gaza", "Asia/Tokyo"],
    *["Australia/Lord_Howe", "Pacific/Apia", "Pacific/Chatham", "Antarctica/Troll"],
]
FIRST, LAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
# Of every kind: at the hours of changes and elsewhere, with ranges, steps, stars, and ends of months.
FIXED = [f"{minute} {hour} * * *" for hour in (0, 1, 2, 3, 12, 23) for minute in (0, 30)]
CRONS = [
    *FIXED,
    *["0 0-23 * * *", "15,45 1-3 * * *", "59 23 L * *", "0 0 1 * *", "30 2 29 2 *", "0 9 * * MON-FRI"],
    *["0 2 * * SUN", "30 1 * * 7L", "5 4 1-7 * 6", "0 0 LW * *", "@weekly", "@yearly"],
]
STARS = [
    *["* * * * *", "*/7 * * * *", "0 * * * *", "30 * * * *", "*/20 2 * * *", "* 0 * * SUN", "* 1 * 3,10 *"],
    *["0 */2 * * *", "45 */3 * * 6,0", "*/30 0-3 L * *", "@hourly"],
]
RRULES = [
    *["FREQ=DAILY", "FREQ=DAILY;INTERVAL=3;BYHOUR=1,2,3;BYMINUTE=30", "FREQ=WEEKLY;BYDAY=SU,MO;BYHOUR=0"],
    *["FREQ=MONTHLY;BYMONTHDAY=-1", "FREQ=MONTHLY;BYDAY=-1SU;BYHOUR=2;BYMINUTE=15", "FREQ=YEARLY"],
    *["FREQ=HOURLY", "FREQ=MINUTELY;INTERVAL=25", "FREQ=YEARLY;BYWEEKNO=1,53;BYDAY=SU"],
    *["FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "FREQ=DAILY;COUNT=5000"],
]
Make = Callable[[str], Rule]


def _cron(text: str) -> Make:
    return lambda tz: Cron(text, tz=tz)


def _rrule(text: str) -> Make:
    return lambda tz: RRule(text, datetime(2019, 5, 31, 2, 30, tzinfo=ZoneInfo(tz)))


def _monthly(day: int, at: time) -> Make:
    return lambda tz: Monthly(day, at=at, tz=tz)


MAKES: list[Make] = [
    *map(_cron, CRONS + STARS),
    *map(_rrule, RRULES),
    *(
        _monthly(day, at)
        for day, at in [(31, time(0)), (-1, time(2, 30)), (29, time(23, 59)), (-28, time(1))]
    ),
]


@lru_cache
def changes(tz: str) -> list[datetime]:
    """The moments, to the hour, at which a clock is changed; the last is a day without one."""
    zone, found, at = ZoneInfo(tz), [], FIRST
    offset = at.astimezone(zone).utcoffset()
    while at < LAST:
        later = at.astimezone(UTC) + DAY
        if (now := later.astimezone(zone).utcoffset()) != offset:
            found.append(
                next(each for each in (at + n * HOUR for n in range(1, 25)) if _offset(each, zone) == now)
            )
        at, offset = later, now
    return [*found, datetime(2030, 1, 15, tzinfo=UTC)]


def _offset(at: datetime, zone: ZoneInfo) -> Any:
    return at.astimezone(zone).utcoffset()


def following(rule: Rule, moment: datetime) -> Iterator[datetime]:
    found = rule.after(moment)
    while found is not None:
        yield found
        found = rule.after(found)


@st.composite
def moments(draw: st.DrawFn, tz: str) -> datetime:
    """Around a change of the clock, or anywhere."""
    anywhere = st.integers(0, int((LAST - FIRST).total_seconds()))
    near = st.tuples(st.sampled_from(changes(tz)), st.integers(-30 * 3600, 6 * 3600))
    drawn = draw(st.one_of(near, near, anywhere))
    return (
        FIRST + timedelta(seconds=drawn)
        if isinstance(drawn, int)
        else drawn[0] + timedelta(seconds=drawn[1])
    )


def test_there_are_as_many_as_promised() -> None:
    """Twenty zones, most of which change their clocks, and fifty rules."""
    assert len(ZONES) == 20
    assert len(MAKES) == 50
    assert len([tz for tz in ZONES if len(changes(tz)) > 20]) > 12


@pytest.mark.parametrize("tz", ZONES)
@profile(quick=60, deep=20_000, steps=1)
@given(data=st.data())
def test_a_moment_has_one_next_time(tz: str, data: st.DataObject) -> None:
    """Times increase, and each is the next from anywhere in the gap before it; JSON changes nothing."""
    rule = data.draw(st.sampled_from(MAKES))(tz)
    moment = data.draw(moments(tz))
    thousandths = data.draw(st.integers(0, 999))
    found = [*islice(following(rule, moment), 6)]
    assert found or "COUNT" in repr(rule)
    again: Any = rule_of(json_of(rule))
    for before, next_time in pairwise([moment, *found]):
        assert before < next_time
        assert next_time.tzinfo is UTC
        assert again.after(before + (next_time - before) * thousandths // 1000) == next_time
        assert rule.after(next_time - timedelta(microseconds=1)) == next_time


@pytest.mark.parametrize("tz", ZONES)
def test_fixed_times_come_once_a_day(tz: str) -> None:
    """Each day of twenty years, at the time of the wall clock, or at the end of the gap that it lies in."""
    zone = ZoneInfo(tz)
    wanted = _skipped(tz)
    rule = Cron(f"{wanted.minute} {wanted.hour} * * *", tz=tz)
    found = [each.astimezone(zone) for each in takewhile(lambda each: each < LAST, following(rule, FIRST))]
    days = [each.date() for each in found]
    assert days == [days[0] + n * DAY for n in range(len(days))]
    assert (LAST - FIRST).days - 1 <= len(days) <= (LAST - FIRST).days + 1
    for each in found:
        if each.time() == wanted:
            assert each.fold == 0
        else:
            before = (each.astimezone(UTC) - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None)
            assert before < datetime.combine(each.date(), wanted) < each.replace(tzinfo=None)


def _skipped(tz: str) -> time:
    """A time that the clock skips at one of its changes, if it has any."""
    zone = ZoneInfo(tz)
    for change in changes(tz):
        before, after = ((change + n * HOUR).astimezone(zone) for n in (-1, 0))
        if after.utcoffset() > before.utcoffset():
            return (before + HOUR + timedelta(minutes=15)).time()
    return time(2, 30)


@pytest.mark.parametrize("tz", ZONES)
def test_fixed_times_are_those_of_cronsim(tz: str) -> None:
    """It has Debian's rule for them; a moment that it gives twice is one."""
    for text in CRONS[len(FIXED) :]:
        rule: Any = Cron(text, tz=tz)
        for change in changes(tz)[:8]:
            began = change - 2 * DAY
            theirs = (each.astimezone(UTC) for each in CronSim(rule.text, began.astimezone(ZoneInfo(tz))))
            expected = [*dict.fromkeys(islice(theirs, 12))][:6]
            assert [*islice(following(rule, began), len(expected))] == expected


@pytest.mark.parametrize("tz", ZONES)
def test_stars_are_what_the_clock_shows(tz: str) -> None:
    """Read each minute around a change, it shows a time that fits at these moments and no others."""
    zone = ZoneInfo(tz)
    for change in changes(tz)[-4:]:
        began = change - 26 * HOUR
        clock = [(began + timedelta(minutes=n)).astimezone(zone) for n in range(1, 32 * 60)]
        for text in STARS:
            rule = Cron(text, tz=tz)
            fields = CronSim(rule.text, datetime(2020, 1, 1))
            expected = [
                each.astimezone(UTC)
                for each in clock
                if each.minute in fields.minutes and each.hour in fields.hours
                if each.month in fields.months and fields.match_day(each.date())
            ]
            assert [*islice(following(rule, began), len(expected))] == expected


NUMBERS: dict[str, list[int]] = {
    "BYMONTH": [*range(1, 13)],
    "BYMONTHDAY": [1, 13, 28, 29, 30, 31, -1, -2, -31],
    "BYYEARDAY": [1, 60, 100, 365, 366, -1, -366],
    # dateutil takes the days before the first week of a year, which are of week 52 or 53, for others.
    "BYWEEKNO": [1, 2, 20, 51],
    "BYHOUR": [0, 2, 9, 23],
    "BYMINUTE": [0, 15, 59],
    "BYSECOND": [0, 30],
    "BYSETPOS": [1, 2, 3, -1, -2],
}
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
FREQUENCIES = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]


@st.composite
def rrules(draw: st.DrawFn) -> str:
    """Any that dateutil reads as RFC 5545 has it."""
    frequency = draw(st.sampled_from(FREQUENCIES))
    # In the first week of a rule, dateutil counts BYSETPOS from its start.
    wrong = {"BYYEARDAY", "BYWEEKNO"} if frequency != "YEARLY" else set()
    wrong |= {"BYMONTHDAY", "BYSETPOS"} if frequency == "WEEKLY" else set()
    names = draw(st.sets(st.sampled_from(sorted({*NUMBERS} - wrong)), max_size=3))
    parts = [f"FREQ={frequency}", f"INTERVAL={draw(st.sampled_from([1, 1, 2, 3, 5, 12]))}"]
    for name in sorted(names):
        numbers = draw(st.lists(st.sampled_from(NUMBERS[name]), min_size=1, max_size=3, unique=True))
        parts.append(f"{name}={','.join(map(str, numbers))}")
    if "BYWEEKNO" in names or draw(st.booleans()):
        # dateutil takes days with a number and days without one as two conditions.
        may_count = frequency in {"YEARLY", "MONTHLY"} and "BYWEEKNO" not in names and draw(st.booleans())
        which = st.sampled_from([1, 2, 5, -1]) if may_count else st.just("")
        days = st.lists(st.tuples(which, st.sampled_from(DAYS)), min_size=1, max_size=4, unique=True)
        parts.append("BYDAY=" + ",".join(f"{number}{day}" for number, day in draw(days)))
    if draw(st.booleans()):
        parts.append(f"WKST={draw(st.sampled_from(['SU', 'WE']))}")
    return ";".join(parts)


@profile(quick=100, deep=10_000, steps=1)
@given(
    text=rrules(),
    start=st.datetimes(datetime(2019, 1, 1), datetime(2024, 12, 31)).map(
        lambda each: each.replace(microsecond=0)
    ),
    later=st.integers(0, 11),
)
def test_an_rrule_has_the_times_of_dateutil(text: str, start: datetime, later: int) -> None:
    """From its start, and from any of its times on, without those before them."""
    periods = Periods(read(text), start)
    found = [*islice(periods.walls(start), 12)]
    assume(found)
    # Only as many as there are: dateutil may search for another one for a long time.
    assert [*islice(rrulestr(text, dtstart=start), len(found))] == found
    began = found[min(later, len(found) - 1)]
    for each in (began, began - timedelta(seconds=1)):
        from_start = dropwhile(lambda wall, each=each: wall < each, periods.walls(start))
        expected = [*islice(from_start, 4)]
        assert [*islice(periods.walls(each), len(expected))] == expected


@pytest.mark.parametrize("number", [1, 2, 52, 53])
def test_weeks_are_those_of_iso_8601(number: int) -> None:
    """On all days of sixty years; -1 is the last week of each."""
    found = Periods(read(f"FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYWEEKNO={number}"), datetime(2000, 1, 1))
    expected = [day for day in _DAYS_OF_SIXTY_YEARS if day.isocalendar().week == number]
    assert [*islice(found.walls(datetime(2000, 1, 1)), len(expected))] == expected
    last = Periods(read("FREQ=YEARLY;BYDAY=SU;BYWEEKNO=-1"), datetime(2000, 1, 1))
    sundays = [day for day in _DAYS_OF_SIXTY_YEARS if day.weekday() == 6]
    expected = [day for day in sundays if (day + 7 * DAY).isocalendar().week == 1]
    assert [*islice(last.walls(datetime(2000, 1, 1)), len(expected))] == expected


_DAYS_OF_SIXTY_YEARS = [datetime(2000, 1, 1) + number * DAY for number in range(60 * 365)]


@profile(quick=100, deep=30_000, steps=1)
@given(text=st.text("0123456789*/-,#LW@ SUNMOJAF", max_size=40) | st.text(max_size=300))
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    """By InvalidRequest, whatever it is; a rule has a time."""
    makes: list[Callable[[], Rule]] = [
        lambda: Cron(text),
        lambda: Cron(text, seconds=True),
        lambda: RRule(text, FIRST),
        lambda: RRule(f"FREQ=DAILY;{text}", FIRST),
        lambda: Cron("@daily", tz=text),
    ]
    for make in makes:
        with contextlib.suppress(InvalidRequest):
            assert make().after(FIRST - DAY) is not None
