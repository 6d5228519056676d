"""Monthly: a day of each month, the last one where a month is shorter."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any, Final

from progressor.calendars.wall_clock import LAST_WALL_YEAR, Wall, first_fixed, from_moment, zone_of
from progressor.errors import InvalidRequest

# Days. The shortest month has so many: a day counted from the end is in every month.
_SHORTEST_MONTH: Final = 28
_LONGEST_MONTH: Final = 31


@dataclass(frozen=True, slots=True)
class Monthly:
    """A time on a day of each month: 1 to 31, in a shorter month its last day; or -1 (the last day) to -28.

    `at` is a time of the wall clock of `tz`, in whole seconds. InvalidRequest for anything else.
    """

    day: int
    at: time = field(default=time(0), kw_only=True)
    tz: str = field(default="UTC", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.day, int) or isinstance(self.day, bool):
            raise InvalidRequest(f"day must be a whole number, not {type(self.day).__name__}", field="day")
        if not (1 <= self.day <= _LONGEST_MONTH or -_SHORTEST_MONTH <= self.day <= -1):
            raise InvalidRequest(
                f"day must be from 1 to 31, or from -1 (the last day) to -28, not {self.day}", field="day"
            )
        if not isinstance(self.at, time) or self.at.tzinfo is not None or self.at.microsecond:
            raise InvalidRequest(
                "at must be a time of whole seconds without tzinfo, such as time(9); its zone is tz",
                field="at",
            )
        object.__setattr__(self, "at", self.at.replace(fold=0))
        zone_of(self.tz)

    def __repr__(self) -> str:
        return f"Monthly(day={self.day}, at={self.at.isoformat()!r}, tz={self.tz!r})"

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after an aware moment, in UTC; None if none comes before the year 9998."""
        asked = from_moment("moment", moment)
        return None if asked is None else first_fixed(asked, zone_of(self.tz), self._walls)

    def _walls(self, start: Wall) -> Iterator[Wall]:
        for month in range(start.year * 12 + start.month - 1, (LAST_WALL_YEAR + 1) * 12):
            year, of_year = divmod(month, 12)
            last = monthrange(year, of_year + 1)[1]
            day = min(self.day, last) if self.day > 0 else last + 1 + self.day
            wall = datetime.combine(date(year, of_year + 1, day), self.at)
            if wall >= start:
                yield wall

    def as_json(self) -> dict[str, Any]:
        """Return the rule as JSON has it; `rule_of` reads it."""
        return {"day": self.day, "at": self.at.isoformat(), "tz": self.tz}
