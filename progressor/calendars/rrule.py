"""RRule: the recurrence rules of calendars (RFC 5545), on a wall clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from progressor.calendars.periods import Periods
from progressor.calendars.rrule_text import canonical, read
from progressor.calendars.wall_clock import (
    FIRST_MOMENT,
    LAST_WALL_YEAR,
    Wall,
    first_fixed,
    from_moment,
    moment_of,
    shown,
    zone_of,
)
from progressor.errors import InvalidRequest
from progressor.inputs import FIRST_YEAR, check_moment


@dataclass(frozen=True, slots=True)
class RRule:
    """Times by an RRULE, such as FREQ=MONTHLY;BYMONTHDAY=-1, from a start on; COUNT or UNTIL end it.

    `start` is aware, and without its fractions of a second. The rule follows the wall clock of `tz`, or of
    the zone of `start` without `tz`. InvalidRequest for a rule without times.
    """

    text: str
    start: datetime
    tz: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", canonical(self.text))
        pattern = read(self.text)
        start = check_moment("start", self.start)
        if not FIRST_YEAR + 1 < start.year <= LAST_WALL_YEAR:
            raise InvalidRequest("start must be in the years 3 to 9997", field="start")
        name = self.tz if self.tz is not None else _zone_name(self.start)
        zone = zone_of(name)
        # What stands on the clock: a start in a gap is behind it.
        wall = shown(start, zone).replace(microsecond=0)
        object.__setattr__(self, "tz", name)
        object.__setattr__(self, "start", wall.replace(tzinfo=zone))
        if next(Periods(pattern, wall).walls(wall), None) is None:
            raise InvalidRequest(
                f"rrule {self.text!r} has no time: its parts exclude each other, as 30 and "
                "February do, or fit together only in many years",
                field="rrule",
            )
        end = _series(self.text, wall, str(name)).end
        if end is not None and self.after(FIRST_MOMENT) is None:
            raise InvalidRequest(
                f"rrule {self.text!r} has no time: its UNTIL is before its first one", field="rrule"
            )

    def __repr__(self) -> str:
        return f"RRule({self.text!r}, start={self.start.isoformat()!r}, tz={self.tz!r})"

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after an aware moment, in UTC; None if the rule has ended."""
        asked = from_moment("moment", moment)
        if asked is None:
            return None
        series = _series(self.text, self.start.replace(tzinfo=None), str(self.tz))
        if series.end is not None and asked >= series.end:
            return None
        found = first_fixed(asked, zone_of(self.tz), series.periods.walls)
        return found if found is None or series.end is None or found <= series.end else None

    def as_json(self) -> dict[str, Any]:
        """Return the rule as JSON has it, its start as a time of the wall clock; `rule_of` reads it."""
        start = self.start.replace(tzinfo=None).isoformat()
        return {"rrule": self.text, "start": start, "tz": self.tz}


@dataclass(frozen=True, slots=True)
class _Series:
    """The periods of a rule, and the last moment at which it may have a time; None if it goes on."""

    periods: Periods
    end: datetime | None


@lru_cache(maxsize=1024)
def _series(text: str, start: Wall, tz: str) -> _Series:
    pattern, zone = read(text), zone_of(tz)
    periods, end = Periods(pattern, start), pattern.until
    if end is not None and end.tzinfo is None:
        end = moment_of(end, zone)
    if pattern.count is not None:
        # The last wall time of them: later calls need not count again.
        end = moment_of(periods.last_of(pattern.count), zone)
    return _Series(periods, end)


def _zone_name(start: datetime) -> str:
    """Return the name of the zone of a start; InvalidRequest if it has only an offset."""
    if isinstance(start.tzinfo, ZoneInfo) and start.tzinfo.key:
        return start.tzinfo.key
    if start.tzinfo is UTC:
        return "UTC"
    raise InvalidRequest(
        "start must have a zone with a name, such as tzinfo=ZoneInfo('Europe/Berlin') or UTC; or give tz=",
        field="start",
    )
