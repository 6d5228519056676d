"""Cron: the five fields of crontab, with the rule of Debian's cron for changes of the clock.

Rule: cronsim reads the fields, and matches days. The times are searched here, so that a moment has one next
time, however far ahead of it the rule is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from progressor.calendars.wall_clock import (
    LAST_WALL_YEAR,
    Wall,
    first_elapsed,
    first_fixed,
    from_moment,
    zone_of,
)
from progressor.errors import InvalidRequest
from progressor.inputs import check_text

if TYPE_CHECKING:
    from cronsim import CronSim

# What cron calls so, in five fields.
MACROS: Final[Mapping[str, str]] = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
# Years. 29 February is the same day of the week after 40 at the latest, around a year such as 2100.
_PATIENCE: Final = 41
_ANY_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time
_TAKES: Final = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31 (a day that one of the months has) or L (the last one)",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7 (both are Sunday), SUN to SAT, 5L (the last Friday), 1#2 (the second Monday)",
}


@dataclass(frozen=True, slots=True)
class Cron:
    """Times by the fields of crontab: minute, hour, day of month, month, day of week; or @daily …

    With `seconds` a sixth field stands before them. Fixed times follow the wall clock of `tz`; if minute or
    hour begin with a star, real time counts when the clock changes. InvalidRequest for a rule without
    times.
    """

    text: str
    tz: str = "UTC"
    seconds: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.seconds, bool):
            raise InvalidRequest("seconds must be True or False", field="seconds")
        text = " ".join(check_text("cron", self.text).upper().split())
        object.__setattr__(self, "text", self._in_fields(text))
        zone_of(self.tz)
        if next(_fields_of(self.text).walls(_ANY_DAY), None) is None:
            raise InvalidRequest(f"cron {text!r} has no time: no such day comes in any year", field="cron")

    def _in_fields(self, text: str) -> str:
        if text.startswith("@"):
            if text not in MACROS:
                macros = ", ".join(macro.lower() for macro in MACROS)
                raise InvalidRequest(f"cron has no {text.lower()!r}; the macros are {macros}", field="cron")
            return f"0 {MACROS[text]}" if self.seconds else MACROS[text]
        wanted = [*_TAKES] if self.seconds else [*_TAKES][1:]
        count = len(text.split())
        if count != len(wanted):
            more = "; with seconds=True a field of seconds stands first" if count == len(_TAKES) else ""
            raise InvalidRequest(
                f"cron must have {len(wanted)} fields ({', '.join(wanted)}), not {count}{more}",
                field="cron",
            )
        return text

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, tz={self.tz!r}{', seconds=True' if self.seconds else ''})"

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after an aware moment, in UTC; None if none comes before the year 9998."""
        asked = from_moment("moment", moment)
        if asked is None:
            return None
        walls = _fields_of(self.text).walls
        if self.is_fixed:
            return first_fixed(asked, zone_of(self.tz), walls)
        return first_elapsed(asked, zone_of(self.tz), lambda wall: next(walls(wall), None))

    @property
    def is_fixed(self) -> bool:
        """True if its times are fixed on the wall clock; False if real time counts when that changes."""
        return _fields_of(self.text).fixed

    def as_json(self) -> dict[str, Any]:
        """Return the rule as JSON has it; `rule_of` reads it."""
        seconds = {"seconds": True} if self.seconds else {}
        return {"cron": self.text, "tz": self.tz, **seconds}


class CronFields:
    """The fields of a cron rule, ready to be searched for the wall times that fit."""

    def __init__(self, parsed: CronSim, parts: list[str]) -> None:
        self._fits = parsed.match_day
        self._months = frozenset(parsed.months)
        self._hours, self._minutes, self._seconds = (
            sorted(each) for each in (parsed.hours, parsed.minutes, parsed.seconds)
        )
        self.fixed = not any(part.startswith("*") for part in parts[-5:-3])
        """Whether the times are fixed on the wall clock: neither minute nor hour begins with a star."""

    def walls(self, start: Wall) -> Iterator[Wall]:
        """Yield the wall times from one on, which has whole seconds; it ends after 41 years without any."""
        day, earliest, last = start.date(), start.time(), min(start.year + _PATIENCE, LAST_WALL_YEAR)
        while day.year <= last:
            if day.month not in self._months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
            else:
                if self._fits(day):
                    for at in self._times(earliest):
                        yield datetime.combine(day, at)
                        last = min(day.year + _PATIENCE, LAST_WALL_YEAR)
                day += timedelta(days=1)
            earliest = time.min

    def _times(self, earliest: time) -> Iterator[time]:
        """Yield the times of a day that fits, from one on."""
        for hour in self._hours[bisect_left(self._hours, earliest.hour) :]:
            first = earliest.minute if hour == earliest.hour else 0
            for minute in self._minutes[bisect_left(self._minutes, first) :]:
                here = (hour, minute) == (earliest.hour, earliest.minute)
                for second in self._seconds[bisect_left(self._seconds, earliest.second if here else 0) :]:
                    yield time(hour, minute, second)


@lru_cache(maxsize=1024)
def _fields_of(text: str) -> CronFields:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only a use of a cron rule needs it

    parts = text.split()
    try:
        return CronFields(CronSim(text, _ANY_DAY), parts)
    except CronSimError as error:
        name = str(error).removeprefix("Bad ")
        part = dict(zip([*_TAKES][-len(parts) :], parts, strict=True))[name]
        raise InvalidRequest(
            f"the {name} of cron cannot be {part!r:.80}: it takes {_TAKES[name]}; also ranges such as 1-5, "
            "steps such as */2, and lists such as 1,3",
            field="cron",
        ) from None
