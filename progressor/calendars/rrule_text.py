"""Patterns: the text of an RRULE of RFC 5545, read and checked part by part.

Rule: a part that the RFC forbids beside another one is refused here, and so is whatever would take long to
be searched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final

from progressor.errors import InvalidRequest
from progressor.inputs import check_text

MOST_COUNTED: Final = 10_000
"""The largest COUNT."""
_MOST_TIMES: Final = 1_440
_MOST_WEEKS: Final = 53
_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_BY_DAY: Final = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL: Final = re.compile(r"([0-9]{8})(?:(T[0-9]{6})(Z?))?")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_CENTURY: Final = timedelta(days=36_525)


class Frequency(IntEnum):
    """The periods of an RRULE, the longest first."""

    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5
    SECONDLY = 6

    @property
    def length(self) -> timedelta:
        """The shortest such period."""
        return _LENGTHS[self]


_LENGTHS: Final = {
    Frequency.YEARLY: timedelta(days=365),
    Frequency.MONTHLY: timedelta(days=28),
    Frequency.WEEKLY: timedelta(days=7),
    Frequency.DAILY: timedelta(days=1),
    Frequency.HOURLY: timedelta(hours=1),
    Frequency.MINUTELY: timedelta(minutes=1),
    Frequency.SECONDLY: timedelta(seconds=1),
}
# The least and the largest number of each part, and whether it may be negative, to count from the end.
_NUMBERS: Final[Mapping[str, tuple[int, int, bool]]] = {
    "BYSECOND": (0, 59, False),
    "BYMINUTE": (0, 59, False),
    "BYHOUR": (0, 23, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYMONTH": (1, 12, False),
    "BYSETPOS": (1, 366, True),
}
_PARTS: Final = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS)
_ELSEWHERE: Final = ("DTSTART", "EXDATE", "RDATE", "EXRULE")


@dataclass(frozen=True, slots=True)
class Pattern:
    """An RRULE as it is written: its parts, empty where it has none."""

    frequency: Frequency
    interval: int
    count: int | None
    until: datetime | None
    """The last moment: in UTC, or of the wall clock without tzinfo."""
    week_start: int
    days: frozenset[tuple[int, int]]
    """BYDAY: a day of the week from 0, Monday, and which one of its month or year; 0 for each."""
    numbers: Mapping[str, tuple[int, ...]]

    def __getitem__(self, part: str) -> tuple[int, ...]:
        return self.numbers.get(part, ())


def _refuse(says: str) -> InvalidRequest:
    return InvalidRequest(f"rrule: {says}", field="rrule")


def canonical(text: object) -> str:
    """Return the text of an RRULE in capitals, without the name of the property; InvalidRequest if none."""
    given = check_text("rrule", text)
    if any(word in given.upper() for word in _ELSEWHERE) or len(given.split()) != 1:
        raise _refuse(
            "it must be one rule in one line, such as FREQ=MONTHLY;BYMONTHDAY=-1, with start= for DTSTART; "
            "RDATE and EXDATE are not supported"
        )
    return given.strip().upper().removeprefix("RRULE:")


def read(text: str) -> Pattern:
    """Return the pattern of a canonical text; InvalidRequest names the part that is wrong."""
    parts = _parts(text)
    try:
        frequency = Frequency[parts["FREQ"]]
    except KeyError:
        known = ", ".join(each.name for each in Frequency)
        raise _refuse(f"it must have FREQ=, one of {known}") from None
    pattern = Pattern(
        frequency=frequency,
        interval=_number("INTERVAL", parts.get("INTERVAL", "1"), 1, int(_CENTURY / frequency.length)),
        count=_number("COUNT", parts["COUNT"], 1, MOST_COUNTED) if "COUNT" in parts else None,
        until=_until(parts["UNTIL"]) if "UNTIL" in parts else None,
        week_start=_week_start(parts.get("WKST", "MO")),
        days=_days(parts["BYDAY"]) if "BYDAY" in parts else frozenset(),
        numbers={name: _numbers(name, parts[name]) for name in _NUMBERS if name in parts},
    )
    _check_together(pattern)
    return pattern


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for each in text.removesuffix(";").split(";"):
        name, equals, value = each.partition("=")
        if name not in _PARTS:
            raise _refuse(f"there is no part {name!r:.40}; the parts are {', '.join(_PARTS)}")
        if not equals or not value or name in parts:
            raise _refuse(f"{name} must stand once, with a value behind '='")
        parts[name] = value
    return parts


def _number(name: str, text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise _refuse(f"{name} must be a number from {least} to {most}, not {text!r:.40}")
    return int(text)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    least, most, negative = _NUMBERS[name]
    found = {_number(name, each, -most if negative else least, most) for each in text.split(",")}
    if 0 in found and negative:
        raise _refuse(f"{name} must not be 0: the first is 1, the last -1")
    return tuple(sorted(found))


def _week_start(text: str) -> int:
    if text not in _DAYS:
        raise _refuse(f"WKST must be one of {', '.join(_DAYS)}, not {text!r:.40}")
    return _DAYS.index(text)


def _until(text: str) -> datetime:
    found = _UNTIL.fullmatch(text)
    try:
        # A date alone is meant with all its day.
        until = datetime.fromisoformat(found[1] + (found[2] or "T235959") if found is not None else "")
    except ValueError:
        raise _refuse(
            f"UNTIL must be a time such as 20301231T230000Z (UTC) or 20301231T230000 (of the wall clock), "
            f"or a date such as 20301231, not {text!r:.40}"
        ) from None
    return until.replace(tzinfo=UTC) if text.endswith("Z") else until


def _days(text: str) -> frozenset[tuple[int, int]]:
    days = set()
    for each in text.split(","):
        found = _BY_DAY.fullmatch(each)
        if found is None or (found[1] is not None and not 1 <= abs(int(found[1])) <= _MOST_WEEKS):
            raise _refuse(
                f"BYDAY takes {', '.join(_DAYS)}, or these with a number such as -1FR, the last Friday, "
                f"not {each!r:.40}"
            )
        days.add((_DAYS.index(found[2]), int(found[1] or 0)))
    return frozenset(days)


def _check_together(pattern: Pattern) -> None:
    """Refuse parts that have no meaning together."""
    frequency = pattern.frequency
    if pattern.count is not None and pattern.until is not None:
        raise _refuse("COUNT and UNTIL both say when it ends: give one of them")
    for part in ("BYYEARDAY", "BYWEEKNO"):
        if pattern[part] and frequency is not Frequency.YEARLY:
            raise _refuse(f"{part} belongs to FREQ=YEARLY")
    if pattern["BYWEEKNO"] and not pattern.days:
        raise _refuse("BYWEEKNO needs BYDAY: which day of the week, such as BYDAY=MO")
    if pattern["BYMONTHDAY"] and frequency is Frequency.WEEKLY:
        raise _refuse("BYMONTHDAY does not belong to FREQ=WEEKLY: use FREQ=MONTHLY or FREQ=DAILY")
    numbered = any(which for _, which in pattern.days)
    if numbered and (frequency > Frequency.MONTHLY or pattern["BYWEEKNO"]):
        raise _refuse(
            "a number in BYDAY, such as 2MO, belongs to FREQ=MONTHLY, or FREQ=YEARLY without BYWEEKNO"
        )
    times = 1
    for part in ("BYHOUR", "BYMINUTE", "BYSECOND"):
        times *= len(pattern[part]) or 1
    if times > _MOST_TIMES:
        raise _refuse(f"BYHOUR, BYMINUTE and BYSECOND give {times} times a period: {_MOST_TIMES} at most")
