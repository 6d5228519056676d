"""Periods: an RRULE's wall times, period after period of its frequency.

Rule: the periods are counted from the start of the rule, so that a search may begin at any of them. It ends
after so many days or times without a find. (dateutil searches such a rule up to the year 9999, which takes
seconds, and nothing can stop it.)
"""

from __future__ import annotations

from calendar import isleap, monthrange
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from itertools import islice, product
from typing import Final

from progressor.calendars.rrule_text import Frequency, Pattern
from progressor.calendars.wall_clock import LAST_WALL_YEAR, Wall
from progressor.errors import InvalidRequest

# Days, or periods shorter than a day, that are looked at without a find.
_PATIENCE: Final = 5_000
# So many in all while the times of a COUNT are counted: days of more than a century.
_MOST_COUNTED_OVER: Final = 40_000
_DAY: Final = timedelta(days=1)
# The day of a week that its year is named by: the fourth.
_NAMING: Final = timedelta(days=3)


class Periods:
    """The periods of a pattern that begins at a wall time, searched for the times that fit."""

    def __init__(self, pattern: Pattern, start: Wall) -> None:
        self._pattern, self._start = pattern, start
        self._frequency = pattern.frequency
        self._step = pattern.interval * pattern.frequency.length
        self._base = self._beginning(start)
        self._months = frozenset(pattern["BYMONTH"])
        self._month_days = frozenset(pattern["BYMONTHDAY"])
        self._year_days = frozenset(pattern["BYYEARDAY"])
        self._weeks = frozenset(pattern["BYWEEKNO"])
        self._days = pattern.days
        self._fill_days()
        self._hours = self._part("BYHOUR", Frequency.HOURLY, start.hour)
        self._minutes = self._part("BYMINUTE", Frequency.MINUTELY, start.minute)
        self._seconds = self._part("BYSECOND", Frequency.SECONDLY, start.second)
        self._times = (
            [time(*each) for each in product(self._hours, self._minutes, self._seconds)]
            if self._frequency < Frequency.HOURLY
            else []
        )

    def _fill_days(self) -> None:
        """Take from the start of the rule which days it means, if it does not say so."""
        if self._days or self._month_days or self._year_days or self._weeks:
            return
        if self._frequency is Frequency.YEARLY and not self._months:
            self._months = frozenset({self._start.month})
        if self._frequency <= Frequency.MONTHLY:
            self._month_days = frozenset({self._start.day})
        if self._frequency is Frequency.WEEKLY:
            self._days = frozenset({(self._start.weekday(), 0)})

    def _part(self, name: str, within: Frequency, of_start: int) -> tuple[int, ...]:
        """Return the numbers of a part of the time; those of the start if it is not there, () for each."""
        return self._pattern[name] or (() if self._frequency >= within else (of_start,))

    def _beginning(self, wall: Wall) -> Wall:
        """Return the beginning of the period that a wall time lies in."""
        midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
        match self._frequency:
            case Frequency.YEARLY:
                return midnight.replace(month=1, day=1)
            case Frequency.MONTHLY:
                return midnight.replace(day=1)
            case Frequency.WEEKLY:
                return midnight - (midnight.weekday() - self._pattern.week_start) % 7 * _DAY
            case Frequency.DAILY:
                return midnight
            case Frequency.HOURLY:
                return wall.replace(minute=0, second=0, microsecond=0)
            case Frequency.MINUTELY:
                return wall.replace(second=0, microsecond=0)
            case Frequency.SECONDLY:
                return wall.replace(microsecond=0)

    def _number_at(self, wall: Wall) -> int:
        """Return the number of the first period that ends after a wall time; they count from 0."""
        wall = max(wall, self._base)
        match self._frequency:
            case Frequency.YEARLY:
                return -(-(wall.year - self._base.year) // self._pattern.interval)
            case Frequency.MONTHLY:
                months = (wall.year - self._base.year) * 12 + wall.month - self._base.month
                return -(-months // self._pattern.interval)
            case _:
                return -(-(self._beginning(wall) - self._base) // self._step)

    def _period(self, number: int) -> Wall | None:
        """Return the beginning of a period; None from the year 9998 on."""
        interval = self._pattern.interval
        try:
            match self._frequency:
                case Frequency.YEARLY:
                    begins = self._base.replace(year=self._base.year + number * interval)
                case Frequency.MONTHLY:
                    years, month = divmod(self._base.month - 1 + number * interval, 12)
                    begins = self._base.replace(year=self._base.year + years, month=month + 1)
                case _:
                    begins = self._base + number * self._step
        except (ValueError, OverflowError):
            return None
        return begins if begins.year <= LAST_WALL_YEAR else None

    def last_of(self, count: int) -> Wall:
        """Return the last of some wall times from the start on; InvalidRequest if they take too long."""
        *_, last = islice(self.walls(self._start, most=_MOST_COUNTED_OVER), count)
        return last

    def walls(self, earliest: Wall, *, most: int | None = None) -> Iterator[Wall]:
        """Yield the wall times from one on, in order; it ends after 5,000 days or times without a find.

        InvalidRequest once `most` days or periods have been looked at.
        """
        earliest = max(earliest, self._start)
        number, patience = self._number_at(earliest), _PATIENCE
        looked_at = 0
        while patience > 0 and (begins := self._period(number)) is not None:
            if self._frequency < Frequency.HOURLY:
                looked, days = self._days_of(begins)
                found: Iterable[Wall] = self._chosen(days, self._times)
            else:
                looked, found = 1, self._within_a_day(begins)
            patience -= looked
            looked_at += looked
            if most is not None and looked_at > most:
                raise InvalidRequest(
                    f"rrule: its COUNT times lie too far apart: they are not within {most:,} days or "
                    "periods. Give a smaller COUNT, or UNTIL",
                    field="rrule",
                )
            number += 1
            for wall in found:
                if wall >= earliest:
                    patience = _PATIENCE
                    yield wall
            if self._frequency >= Frequency.DAILY:
                number = max(number, self._number_at(self._next_that_may_fit(begins)))

    def _within_a_day(self, begins: Wall) -> Iterator[Wall]:
        """Yield the times of a period that is an hour or shorter."""
        if not self._may_fit(begins):
            return iter(())
        minutes = (begins.minute,) if self._frequency >= Frequency.MINUTELY else self._minutes
        seconds = (begins.second,) if self._frequency >= Frequency.SECONDLY else self._seconds
        times = [time(begins.hour, minute, second) for minute in minutes for second in seconds]
        return self._chosen([begins.date()], times)

    def _may_fit(self, begins: Wall) -> bool:
        return (
            self._fits(begins.date())
            and (not self._hours or begins.hour in self._hours)
            and (
                self._frequency < Frequency.MINUTELY or not self._minutes or begins.minute in self._minutes
            )
            and (
                self._frequency < Frequency.SECONDLY or not self._seconds or begins.second in self._seconds
            )
        )

    def _next_that_may_fit(self, begins: Wall) -> Wall:
        """Return a wall time before which no period fits that begins after this one."""
        if self._months and begins.month not in self._months:
            return (begins.replace(day=1, hour=0, minute=0, second=0) + 32 * _DAY).replace(day=1)
        if self._frequency is Frequency.DAILY:
            return begins
        if not self._fits(begins.date()):
            return begins.replace(hour=0, minute=0, second=0) + _DAY
        if self._hours and begins.hour not in self._hours:
            return begins.replace(minute=0, second=0) + timedelta(hours=1)
        if self._frequency is Frequency.SECONDLY and self._minutes and begins.minute not in self._minutes:
            return begins.replace(second=0) + timedelta(minutes=1)
        return begins

    def _chosen(self, days: list[date], times: list[time]) -> Iterator[Wall]:
        """Yield the times of a period, or those of them that BYSETPOS chooses."""
        places = self._pattern["BYSETPOS"]
        if not places:
            return (datetime.combine(day, at) for day in days for at in times)
        count = len(days) * len(times)
        chosen = {place - 1 if place > 0 else count + place for place in places}
        return (
            datetime.combine(days[place // len(times)], times[place % len(times)])
            for place in sorted(chosen)
            if 0 <= place < count
        )

    def _days_of(self, begins: Wall) -> tuple[int, list[date]]:
        """Return how many days of a period were looked at, and those that fit."""
        first = begins.date()
        match self._frequency:
            case Frequency.YEARLY:
                candidates = self._days_of_year(first)
            case Frequency.MONTHLY:
                is_meant = not self._months or first.month in self._months
                candidates = _days_from(first, monthrange(first.year, first.month)[1] if is_meant else 1)
            case Frequency.WEEKLY:
                candidates = _days_from(first, 7)
            case _:
                candidates = [first]
        return len(candidates), [day for day in candidates if self._fits(day)]

    def _days_of_year(self, first: date) -> list[date]:
        """Return the days of a year that may fit: those with a number, those of some months, or all."""
        length = _length_of_year(first.year)
        if self._year_days:
            numbers = {each if each > 0 else length + 1 + each for each in self._year_days}
            # At least one, so that a search without a find ends.
            return [first + (each - 1) * _DAY for each in sorted(numbers) if 1 <= each <= length] or [first]
        if not self._months:
            return _days_from(first, length)
        return [
            day
            for month in sorted(self._months)
            for day in _days_from(first.replace(month=month), monthrange(first.year, month)[1])
        ]

    def _fits(self, day: date) -> bool:
        return (
            (not self._months or day.month in self._months)
            and (not self._month_days or self._fits_month_day(day))
            and (not self._days or self._fits_weekday(day))
            and (not self._year_days or self._fits_year_day(day))
            and (not self._weeks or self._fits_week(day))
        )

    def _fits_month_day(self, day: date) -> bool:
        if day.day in self._month_days:
            return True
        return day.day - monthrange(day.year, day.month)[1] - 1 in self._month_days

    def _fits_year_day(self, day: date) -> bool:
        number = day.timetuple().tm_yday
        return number in self._year_days or number - _length_of_year(day.year) - 1 in self._year_days

    def _fits_weekday(self, day: date) -> bool:
        weekday = day.weekday()
        if (weekday, 0) in self._days:
            return True
        if all(which == 0 for _, which in self._days):
            return False
        if self._frequency is Frequency.YEARLY and not self._months:
            before, length = day.timetuple().tm_yday - 1, _length_of_year(day.year)
        else:
            before, length = day.day - 1, monthrange(day.year, day.month)[1]
        from_the_end = (length - 1 - before) // 7 + 1
        return (weekday, before // 7 + 1) in self._days or (weekday, -from_the_end) in self._days

    def _fits_week(self, day: date) -> bool:
        """Return whether the week of a day has one of the numbers; most of week 1 lies in its year."""
        begins = day - (day.weekday() - self._pattern.week_start) % 7 * _DAY
        year = (begins + _NAMING).year
        number = (begins - self._first_week(year)).days // 7 + 1
        weeks = (self._first_week(year + 1) - self._first_week(year)).days // 7
        return number in self._weeks or number - weeks - 1 in self._weeks

    def _first_week(self, year: int) -> date:
        fourth = date(year, 1, 1) + _NAMING
        return fourth - (fourth.weekday() - self._pattern.week_start) % 7 * _DAY


def _length_of_year(year: int) -> int:
    return 366 if isleap(year) else 365


def _days_from(first: date, count: int) -> list[date]:
    return [first + number * _DAY for number in range(count)]
