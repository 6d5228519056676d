"""Calendar rules: their times, their answers at changes of the clock, their JSON, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from progressor import Cron, InvalidRequest, Monthly, RRule
from progressor.calendars import Rule, json_of, rule_of
from progressor.calendars.cron import CronFields
from progressor.calendars.periods import Periods

BERLIN = "Europe/Berlin"
START = datetime(2026, 1, 31, 9, tzinfo=ZoneInfo(BERLIN))


def daily(at: time, tz: str) -> RRule:
    return RRule("FREQ=DAILY", datetime.combine(datetime(2020, 1, 1), at, tzinfo=ZoneInfo(tz)))


def times(rule: Rule, after: str, count: int) -> list[str]:
    """The next times after a moment of the rule's wall clock, as that clock shows them."""
    zone = ZoneInfo(rule.tz or "UTC")
    moment: datetime | None = datetime.fromisoformat(after).replace(tzinfo=zone)
    found = []
    while len(found) < count and moment is not None:
        moment = rule.after(moment)
        found.append("none" if moment is None else f"{moment.astimezone(zone):%Y-%m-%d %H:%M%z}")
    return found


# Forward from 02:00 to 03:00 on 29 March 2026, back from 03:00 to 02:00 on 25 October.
@pytest.mark.parametrize(
    ("rule", "forward", "back"),
    [
        (
            Cron("30 2 * * *", tz=BERLIN),
            ["2026-03-29 03:00+0200", "2026-03-30 02:30+0200"],
            ["2026-10-25 02:30+0200", "2026-10-26 02:30+0100"],
        ),
        (
            Cron("0 30 2 * * *", tz=BERLIN, seconds=True),
            ["2026-03-29 03:00+0200", "2026-03-30 02:30+0200"],
            ["2026-10-25 02:30+0200", "2026-10-26 02:30+0100"],
        ),
        (
            daily(time(2, 30), BERLIN),
            ["2026-03-29 03:00+0200", "2026-03-30 02:30+0200"],
            ["2026-10-25 02:30+0200", "2026-10-26 02:30+0100"],
        ),
        (
            Cron("0,30 1-3 * * *", tz=BERLIN),
            ["2026-03-29 01:00+0100", "2026-03-29 01:30+0100", "2026-03-29 03:00+0200"],
            [
                "2026-10-25 01:00+0200",
                "2026-10-25 01:30+0200",
                "2026-10-25 02:00+0200",
                "2026-10-25 02:30+0200",
                "2026-10-25 03:00+0100",
            ],
        ),
        (
            Cron("0 * 29,25 3,10 *", tz=BERLIN),
            ["2026-03-29 00:00+0100", "2026-03-29 01:00+0100", "2026-03-29 03:00+0200"],
            [
                "2026-10-25 00:00+0200",
                "2026-10-25 01:00+0200",
                "2026-10-25 02:00+0200",
                "2026-10-25 02:00+0100",
                "2026-10-25 03:00+0100",
            ],
        ),
        (
            Cron("*/30 2 * * *", tz=BERLIN),
            ["2026-03-30 02:00+0200", "2026-03-30 02:30+0200"],
            [
                "2026-10-25 02:00+0200",
                "2026-10-25 02:30+0200",
                "2026-10-25 02:00+0100",
                "2026-10-25 02:30+0100",
                "2026-10-26 02:00+0100",
            ],
        ),
        (
            Cron("0 */2 * * *", tz=BERLIN),
            [f"2026-03-28 {hour}:00+0100" for hour in (14, 16, 18, 20, 22)]
            + ["2026-03-29 00:00+0100", "2026-03-29 04:00+0200"],
            [f"2026-10-24 {hour}:00+0200" for hour in (14, 16, 18, 20, 22)]
            + ["2026-10-25 00:00+0200", "2026-10-25 02:00+0200"]
            + ["2026-10-25 02:00+0100", "2026-10-25 04:00+0100"],
        ),
        (
            RRule("FREQ=HOURLY;BYHOUR=1,2,3", START),
            ["2026-03-29 01:00+0100", "2026-03-29 03:00+0200", "2026-03-30 01:00+0200"],
            ["2026-10-25 01:00+0200", "2026-10-25 02:00+0200", "2026-10-25 03:00+0100"],
        ),
    ],
    ids=str,
)
def test_the_clock_changes(rule: Rule, forward: list[str], back: list[str]) -> None:
    """Fixed times come once, behind the gap or at the first of two; stars follow the time that passes."""
    assert times(rule, "2026-03-28T12:00", len(forward)) == forward
    assert times(rule, "2026-10-24T12:00", len(back)) == back


@pytest.mark.parametrize(
    ("rule", "after", "expected"),
    [
        # Half an hour forward and back.
        (Monthly(day=4, at=time(2, 15), tz="Australia/Lord_Howe"), "2026-10-01", "2026-10-04 02:30+1100"),
        (Cron("45 1 5 4 *", tz="Australia/Lord_Howe"), "2026-04-01", "2026-04-05 01:45+1100"),
        # Midnight does not exist.
        (Cron("0 0 * * *", tz="America/Havana"), "2026-03-07T12:00", "2026-03-08 01:00-0400"),
        (Cron("@daily", tz="Africa/Cairo"), "2026-04-23T12:00", "2026-04-24 01:00+0300"),
        (Cron("0 0 * * FRI", tz="Africa/Cairo"), "2026-04-23T12:00", "2026-04-24 01:00+0300"),
        (Cron("0 0 6 9 *", tz="America/Santiago"), "2026-09-05T12:00", "2026-09-06 01:00-0300"),
        # Midnight comes twice.
        (Cron("30 23 4 4 *", tz="America/Santiago"), "2026-04-04T12:00", "2026-04-04 23:30-0300"),
        (Cron("59 0 * * SUN", tz="America/Havana"), "2025-11-01T12:00", "2025-11-02 00:59-0400"),
        # A day that no clock of Samoa has shown.
        (Cron("0 9 30 12 *", tz="Pacific/Apia"), "2011-12-01", "2011-12-31 00:00+1400"),
        (Monthly(day=30, at=time(9), tz="Pacific/Apia"), "2011-12-01", "2011-12-31 00:00+1400"),
        # Two hours at once.
        (Cron("30 1 29 3 *", tz="Antarctica/Troll"), "2026-03-28", "2026-03-29 03:00+0200"),
        # A winter time that is called summer time.
        (Cron("30 1 * * *", tz="Europe/Dublin"), "2026-03-28T12:00", "2026-03-29 02:00+0100"),
        (Cron("30 1 * * *", tz="Europe/Dublin"), "2026-10-24T12:00", "2026-10-25 01:30+0100"),
        # Back for Ramadan.
        (Cron("30 2 * * *", tz="Africa/Casablanca"), "2026-02-14T12:00", "2026-02-15 02:30+0100"),
        (Cron("30 2 * * *", tz="Africa/Casablanca"), "2026-03-21T12:00", "2026-03-22 03:00+0100"),
        # Quarters of an hour.
        (Cron("0 * * * *", tz="Asia/Kathmandu"), "2026-01-01T00:30", "2026-01-01 01:00+0545"),
        (Cron("50 2 5 4 *", tz="Pacific/Chatham"), "2026-04-04", "2026-04-05 02:50+1345"),
    ],
)
def test_odd_zones(rule: Rule, after: str, expected: str) -> None:
    """Changes of other sizes, at other hours, and a day that is left out."""
    assert times(rule, after, 1) == [expected]


def test_a_star_comes_back_with_the_clock() -> None:
    """The hour from midnight to one, which comes twice, although the next day that fits is a week away."""
    found = times(Cron("*/30 0 * * SUN", tz="America/Havana"), "2025-11-01T12:00", 5)
    assert found == [
        "2025-11-02 00:00-0400",
        "2025-11-02 00:30-0400",
        "2025-11-02 00:00-0500",
        "2025-11-02 00:30-0500",
        "2025-11-09 00:00-0500",
    ]


def test_times_within_a_gap_are_one() -> None:
    """Both are the moment behind it, which a rule has once, even if it has that time too."""
    rule = Cron("0,15,45 2,3 * * *", tz=BERLIN)
    assert times(rule, "2026-03-28T12:00", 3) == [
        "2026-03-29 03:00+0200",
        "2026-03-29 03:15+0200",
        "2026-03-29 03:45+0200",
    ]


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (31, ["2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"]),
        (29, ["2028-01-29", "2028-02-29", "2028-03-29", "2028-04-29"]),
        (-1, ["2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"]),
        (-28, ["2028-01-04", "2028-02-02", "2028-03-04", "2028-04-03"]),
        (1, ["2028-01-01", "2028-02-01", "2028-03-01", "2028-04-01"]),
    ],
)
def test_days_of_months(day: int, expected: list[str]) -> None:
    """A day that a month lacks is its last; the end is counted from the last day."""
    rule = Monthly(day=day, at=time(9))
    assert [each[:10] for each in times(rule, "2027-12-31T10:00", 4)] == expected
    assert times(Monthly(day=30), "2027-02-01", 1) == ["2027-02-28 00:00+0000"]


@pytest.mark.parametrize(
    ("macro", "fields"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_macros_are_fields(macro: str, fields: str) -> None:
    """A macro is equal to the fields that it stands for, with seconds too."""
    assert Cron(macro) == Cron(f"  {fields} ") == rule_of({"cron": macro, "tz": "UTC"})
    assert Cron(macro, seconds=True) == Cron(f"0 {fields}", seconds=True)


def test_count_ends_a_rule() -> None:
    """After as many wall times; every one of them is found from anywhere."""
    rule = RRule("FREQ=MONTHLY;BYMONTHDAY=-1;COUNT=3", START)
    assert times(rule, "2020-01-01", 4) == [
        "2026-01-31 09:00+0100",
        "2026-02-28 09:00+0100",
        "2026-03-31 09:00+0200",
        "none",
    ]


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("20260202", "2026-02-02 09:00+0100"),
        ("20260202T090000", "2026-02-02 09:00+0100"),
        ("20260202T085959", "2026-02-01 09:00+0100"),
        ("20260202T080000Z", "2026-02-02 09:00+0100"),
        ("20260202T075959Z", "2026-02-01 09:00+0100"),
    ],
)
def test_until_ends_a_rule(until: str, last: str) -> None:
    """With the moment itself; a date with all its day."""
    found = times(RRule(f"FREQ=DAILY;UNTIL={until}", START), "2026-01-31T10:00", 5)
    assert found[-2:] == [last, "none"]


def test_the_start_is_the_first_time_only_if_it_fits() -> None:
    """Its fractions of a second are not of the rule; nothing comes before it."""
    start = START.replace(microsecond=999_999)
    assert times(RRule("FREQ=DAILY", start), "2020-01-01", 1) == ["2026-01-31 09:00+0100"]
    assert times(RRule("FREQ=MONTHLY;BYMONTHDAY=1", start), "2020-01-01", 1) == ["2026-02-01 09:00+0100"]
    elsewhere = RRule("FREQ=DAILY", datetime(2026, 1, 31, 8, tzinfo=UTC), tz=BERLIN)
    assert elsewhere == RRule("rrule:freq=daily", START)


def test_february_29() -> None:
    """It comes in leap years; the same day of the week may be forty years away."""
    assert times(Cron("0 0 29 2 *"), "2096-03-01", 1) == ["2104-02-29 00:00+0000"]
    assert times(Cron("0 0 29 2 */7"), "2072-03-01", 2) == [
        "2088-02-29 00:00+0000",
        "2128-02-29 00:00+0000",
    ]
    sundays = RRule("FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU", datetime(2072, 3, 1, tzinfo=UTC))
    assert times(sundays, "2072-03-01", 2) == ["2088-02-29 00:00+0000", "2128-02-29 00:00+0000"]


RULES: list[Rule] = [
    Cron("0 9 1 * *", tz=BERLIN),
    Cron("*/5 * * * * *", seconds=True),
    Cron("0 0 L * MON-FRI", tz="Asia/Kathmandu"),
    RRule("FREQ=MONTHLY;BYMONTHDAY=-1", START),
    RRule("FREQ=DAILY;COUNT=3", datetime(2026, 3, 29, 1, tzinfo=UTC), tz=BERLIN),
    RRule("FREQ=DAILY;UNTIL=20300101T000000Z", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    Monthly(day=31, at=time(9), tz=BERLIN),
    Monthly(-1),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rules_are_values(rule: Rule) -> None:
    """They are hashable, go through JSON and pickle, and equal what comes back."""
    again: Any = rule_of(json_of(rule))
    assert again == rule == pickle.loads(pickle.dumps(rule))
    assert hash(again) == hash(rule)
    assert len({*RULES}) == len(RULES)
    assert again.after(START) == rule.after(START)
    with pytest.raises(AttributeError):
        rule.tz = "UTC"  # type: ignore[misc]


def test_json_of_each_kind() -> None:
    """It has the words that are stored: names of zones, and the wall clock of a start."""
    assert json_of(Cron("0 9 1 * *", tz=BERLIN)) == {"cron": "0 9 1 * *", "tz": BERLIN}
    assert json_of(Cron("@hourly", seconds=True)) == {"cron": "0 0 * * * *", "tz": "UTC", "seconds": True}
    assert json_of(RRule("FREQ=DAILY", START)) == {
        "rrule": "FREQ=DAILY",
        "start": "2026-01-31T09:00:00",
        "tz": BERLIN,
    }
    assert json_of(Monthly(day=31, at=time(9), tz=BERLIN)) == {"day": 31, "at": "09:00:00", "tz": BERLIN}
    assert json_of(timedelta(hours=1)) == {"seconds": 3600.0}
    assert rule_of({"seconds": 0.25}) == timedelta(milliseconds=250)
    assert repr(Cron("@daily")) == "Cron('0 0 * * *', tz='UTC')"
    assert repr(RULES[3]) == (
        "RRule('FREQ=MONTHLY;BYMONTHDAY=-1', start='2026-01-31T09:00:00+01:00', tz='Europe/Berlin')"
    )
    assert repr(Monthly(-1, at=time(9))) == "Monthly(day=-1, at='09:00:00', tz='UTC')"


@pytest.mark.parametrize(
    ("json", "field"),
    [
        ({}, "every"),
        (None, "every"),
        ({"cron": "@daily"}, "every"),
        ({"cron": "@daily", "tz": "UTC", "day": 1}, "every"),
        ({"cron": 5, "tz": "UTC"}, "cron"),
        ({"cron": "@daily", "tz": "UTC", "seconds": 1}, "seconds"),
        ({"rrule": "FREQ=DAILY", "start": "soon", "tz": "UTC"}, "start"),
        ({"rrule": "FREQ=DAILY", "start": "2026-01-31T09:00:00", "tz": None}, "tz"),
        ({"day": 1, "at": "nine", "tz": "UTC"}, "at"),
        ({"day": "1", "at": "09:00:00", "tz": "UTC"}, "day"),
        ({"seconds": 1e-9}, "seconds"),
        ({"seconds": -1}, "seconds"),
        ({"seconds": 1e12}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
    ],
)
def test_other_json_is_refused(json: Any, field: str) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequest) as error:
        rule_of(json)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("make", "field", "says"),
    [
        (lambda: Cron("0 0 1--100000000 * *"), "cron", "the day-of-month of cron cannot be '1--100000000'"),
        (lambda: Cron("0 0 1-100000000 * *"), "cron", "it takes 1 to 31"),
        (lambda: Cron("*/0 * * * *"), "cron", "the minute of cron cannot be"),
        (lambda: Cron("0 25 * * *"), "cron", "it takes 0 to 23"),
        (lambda: Cron("0 0 30 2 *"), "cron", "a day that one of the months has"),
        (lambda: Cron("0 0 31 4,6 *"), "cron", "a day that one of the months has"),
        (lambda: Cron("0 0 * 13 *"), "cron", "JAN to DEC"),
        (lambda: Cron("0 0 * * 8"), "cron", "SUN to SAT"),
        (lambda: Cron("70 * * * * *", seconds=True), "cron", "the second of cron"),
        (lambda: Cron("* * * * * *"), "cron", "with seconds=True"),
        (
            lambda: Cron("* * * *"),
            "cron",
            "5 fields (minute, hour, day-of-month, month, day-of-week), not 4",
        ),
        (lambda: Cron("* * * * *", seconds=True), "cron", "6 fields (second, minute,"),
        (lambda: Cron("* * * * *", seconds="yes"), "seconds", "True or False"),  # type: ignore[arg-type]
        (
            lambda: Cron("@reboot"),
            "cron",
            "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly",
        ),
        (lambda: Cron("1," * 200 + "1 * * * *"), "cron", "1 to 256 characters"),
        (lambda: Cron(""), "cron", "1 to 256 characters"),
        (lambda: Cron(5), "cron", "must be a text"),  # type: ignore[arg-type]
        (lambda: Cron("@daily", tz="Europe/Berln"), "tz", "near to it are Europe/Berlin"),
        (lambda: Cron("@daily", tz="Mars/Phobos"), "tz", "the package tzdata has the list"),
        (lambda: Cron("@daily", tz="../../etc/passwd"), "tz", "there is no time zone"),
        (lambda: Cron("@daily", tz="/etc/localtime"), "tz", "there is no time zone"),
        (lambda: Cron("@daily", tz="localtime"), "tz", "there is no time zone"),
        (lambda: Cron("@daily", tz="America"), "tz", "there is no time zone"),
        (lambda: Cron("@daily", tz="right/Europe/Berlin"), "tz", "there is no time zone"),
        (lambda: Cron("@daily", tz=UTC), "tz", "the name of a time zone"),  # type: ignore[arg-type]
        (lambda: Monthly(0), "day", "from 1 to 31, or from -1"),
        (lambda: Monthly(32), "day", "from 1 to 31, or from -1"),
        (lambda: Monthly(-29), "day", "from 1 to 31, or from -1"),
        (lambda: Monthly(True), "day", "a whole number"),
        (lambda: Monthly(1, at=time(9, tzinfo=UTC)), "at", "without tzinfo"),
        (lambda: Monthly(1, at=time(9, 0, 0, 1)), "at", "whole seconds"),
        (lambda: Monthly(1, at=9), "at", "such as time(9)"),  # type: ignore[arg-type]
        (lambda: RRule("FREQ=DAILY", datetime(2026, 1, 1)), "start", "aware"),
        (
            lambda: RRule("FREQ=DAILY", datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
            "start",
            "tz=",
        ),
        (lambda: RRule("FREQ=DAILY", datetime(1, 1, 2, tzinfo=UTC)), "start", "years 3 to 9997"),
        (lambda: RRule("FREQ=DAILY", START, tz="Nowhere"), "tz", "there is no time zone"),
    ],
)
def test_what_is_no_rule_is_refused(make: Callable[[], Rule], field: str, says: str) -> None:
    """The error names the field, what is wrong, and what would be right."""
    with pytest.raises(InvalidRequest) as error:
        make()
    assert error.value.field == field
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "1 to 256 characters"),
        ("FREQ=DAILY;BYHOUR=" + "1," * 200 + "1", "1 to 256 characters"),
        ("BYDAY=MO", "it must have FREQ="),
        ("FREQ=FORTNIGHTLY", "YEARLY, MONTHLY, WEEKLY, DAILY"),
        ("FREQ=DAILY;BYEASTER=0", "there is no part 'BYEASTER'"),
        ("FREQ=DAILY;FREQ=DAILY", "FREQ must stand once"),
        ("FREQ=DAILY;COUNT", "with a value behind '='"),
        ("DTSTART:20260101T000000Z\nRRULE:FREQ=DAILY", "one rule in one line"),
        ("FREQ=DAILY;EXDATE=20260101", "one rule in one line"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL must be a number from 1 to 36525"),
        ("FREQ=YEARLY;INTERVAL=101", "INTERVAL must be a number from 1 to 100"),
        ("FREQ=SECONDLY;INTERVAL=99999999999999999999", "INTERVAL must be a number"),
        ("FREQ=DAILY;COUNT=10001", "COUNT must be a number from 1 to 10000"),
        ("FREQ=DAILY;COUNT=0", "COUNT must be a number from 1 to 10000"),
        ("FREQ=DAILY;BYDAY=FR;BYMONTHDAY=13;COUNT=10000", "COUNT times lie too far apart"),
        ("FREQ=MINUTELY;BYDAY=FR;BYMONTHDAY=13;BYHOUR=3;BYMINUTE=3;COUNT=10000", "too far apart"),
        ("FREQ=MONTHLY;COUNT=9999", "too far apart"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20300101", "give one of them"),
        ("FREQ=DAILY;UNTIL=20250101", "its UNTIL is before its first one"),
        ("FREQ=DAILY;UNTIL=20250132", "UNTIL must be a time such as"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL must be a time such as"),
        ("FREQ=DAILY;WKST=X", "WKST must be one of MO"),
        ("FREQ=DAILY;BYDAY=XX", "BYDAY takes MO"),
        ("FREQ=MONTHLY;BYDAY=54MO", "BYDAY takes MO"),
        ("FREQ=WEEKLY;BYDAY=1MO", "belongs to FREQ=MONTHLY"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY must not be 0"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "BYMONTHDAY must be a number from -31 to 31"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY does not belong to FREQ=WEEKLY"),
        ("FREQ=MONTHLY;BYYEARDAY=1", "BYYEARDAY belongs to FREQ=YEARLY"),
        ("FREQ=MONTHLY;BYWEEKNO=1", "BYWEEKNO belongs to FREQ=YEARLY"),
        ("FREQ=YEARLY;BYWEEKNO=1", "BYWEEKNO needs BYDAY"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR must be a number from 0 to 23"),
        ("FREQ=DAILY;BYSECOND=60", "BYSECOND must be a number from 0 to 59"),
        ("FREQ=MONTHLY;BYSETPOS=367;BYDAY=MO", "BYSETPOS must be a number from -366 to 366"),
        ("FREQ=YEARLY;BYDAY=MO;BYSETPOS=366", "exclude each other"),
        ("FREQ=DAILY;BYSETPOS=2", "exclude each other"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "exclude each other"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "exclude each other"),
        ("FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", "exclude each other"),
        ("FREQ=SECONDLY;INTERVAL=86400;BYHOUR=3", "exclude each other"),
        ("FREQ=MINUTELY;INTERVAL=60;BYMINUTE=5", "exclude each other"),
    ],
)
def test_an_rrule_without_a_time_is_refused(text: str, says: str) -> None:
    """So is what has no meaning, or would be searched for long; the error says why."""
    with pytest.raises(InvalidRequest) as error:
        RRule(text, START)
    assert error.value.field == "rrule"
    assert says in str(error.value)


def test_too_many_times_a_day_are_refused() -> None:
    """A text within its limits may multiply: one a minute is the most."""
    numbers = ",".join(map(str, range(10)))
    text = f"FREQ=DAILY;BYHOUR={numbers};BYMINUTE={numbers};BYSECOND={numbers},10,11,12,13,14"
    with pytest.raises(InvalidRequest, match="1500 times a period: 1440 at most"):
        RRule(text, START)


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30;BYHOUR=3",
        "FREQ=SECONDLY;INTERVAL=7;BYHOUR=3;BYMINUTE=3;BYDAY=MO;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=YEARLY;BYMONTHDAY=31;BYMONTH=2,4,6,9,11",
        "FREQ=YEARLY;BYYEARDAY=366;INTERVAL=100",
    ],
)
def test_a_search_in_vain_ends(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """It looks at some thousand days or times, whatever the rule says."""
    looks = 0
    fits = Periods._fits

    def counted(periods: Periods, day: Any) -> bool:
        nonlocal looks
        looks += 1
        return fits(periods, day)

    monkeypatch.setattr(Periods, "_fits", counted)
    with pytest.raises(InvalidRequest):
        RRule(text, START)
    assert 0 < looks <= 3 * 5_000


@pytest.mark.parametrize(
    "text", ["FREQ=SECONDLY", "FREQ=MINUTELY;INTERVAL=7", "FREQ=WEEKLY;BYDAY=MO,FR", "FREQ=DAILY"]
)
def test_a_search_begins_where_it_is_asked(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A hundred years behind its start a rule looks at few periods."""
    rule = RRule(text, datetime(1950, 1, 1, tzinfo=UTC))
    looks = 0
    period = Periods._period

    def counted(periods: Periods, number: int) -> Any:
        nonlocal looks
        looks += 1
        return period(periods, number)

    monkeypatch.setattr(Periods, "_period", counted)
    assert rule.after(datetime(2050, 1, 1, tzinfo=UTC)) is not None
    assert looks <= 3


def test_cron_ends_too() -> None:
    """A search for a day that never comes looks at 41 years, however the fields were read."""

    looked: list[Any] = []

    def never(day: Any) -> bool:
        looked.append(day)
        return False

    parsed: Any = SimpleNamespace(months={2}, hours={0}, minutes={0}, seconds={0}, match_day=never)
    assert [*CronFields(parsed, ["0", "0", "*", "*", "*"]).walls(datetime(2026, 1, 1))] == []
    assert {day.year for day in looked} == {*range(2026, 2068)}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_moment_is_aware(rule: Rule) -> None:
    """Its zone does not matter; its fractions of a second do."""
    with pytest.raises(InvalidRequest, match="moment must be an aware datetime"):
        rule.after(datetime(2026, 1, 1))
    first = rule.after(START)
    assert first is not None
    assert first.tzinfo is UTC
    assert rule.after(START.astimezone(ZoneInfo("Asia/Tokyo"))) == first
    assert rule.after(first - timedelta(microseconds=1)) == first
    assert rule.after(first) != first


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_ends_of_time(rule: Rule) -> None:
    """Nothing fails at the first and last years that Python knows."""
    assert rule.after(datetime.max.replace(tzinfo=UTC)) is None
    assert rule.after(datetime(9998, 1, 1, tzinfo=UTC)) is None
    first = rule.after(datetime.min.replace(tzinfo=UTC))
    assert first is not None
    assert first == rule.after(first - timedelta(seconds=1))
