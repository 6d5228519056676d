"""Wall clocks: the times that a clock shows in a zone, and the moments of UTC at which it shows them.

Rule: a wall time that a change of the clock skips is the first moment after the gap; one that comes twice
is the first of the two. `Wall` is a datetime without tzinfo.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from progressor.errors import InvalidRequest
from progressor.inputs import FIRST_YEAR, LAST_YEAR, check_moment, check_text, nearest_names

Wall = datetime

SECOND: Final = timedelta(seconds=1)
FIRST_MOMENT: Final = datetime(FIRST_YEAR + 1, 1, 2, tzinfo=UTC)
"""The moment after which rules have their times, and which every zone can show."""
LAST_WALL_YEAR: Final = LAST_YEAR - 2
"""The last year of a wall time, so that its moment can be stored whatever its zone is."""
# Two changes of one clock are further apart.
_APART: Final = timedelta(days=7)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
# Of the computer, not of the world: other computers do not know them, or know other zones by them.
_LOCAL_ZONES: Final = {"Factory", "localtime", "posix", "posixrules", "right"}


@lru_cache(maxsize=512)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    if not _ZONE.fullmatch(name) or name.partition("/")[0] in _LOCAL_ZONES:
        raise ZoneInfoNotFoundError(name)
    return ZoneInfo(name)


def zone_of(name: object) -> tzinfo:
    """Return the zone of a name of the IANA database; InvalidRequest if there is none."""
    if not isinstance(name, str):
        raise InvalidRequest(
            f"tz must be the name of a time zone, such as 'Europe/Berlin', not {type(name).__name__}",
            field="tz",
        )
    text = check_text("tz", name)
    try:
        return _zone(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        alike = nearest_names(text, _zones_near(text))[:3]
        meant = f"; near to it are {', '.join(alike)}" if alike else ""
        raise InvalidRequest(
            f"there is no time zone {text!r}{meant}. The names are those of the IANA database, such as "
            "Europe/Berlin; the package tzdata has the list",
            field="tz",
        ) from None


def _zones_near(name: str) -> list[str]:
    """Return the zones of the same continent, or those whose name ends alike."""
    area = name.partition("/")[0].casefold()
    end = name.rpartition("/")[2].casefold()[:3]
    return sorted(
        each
        for each in available_timezones() - _LOCAL_ZONES
        if each.casefold().startswith(f"{area}/") or each.rpartition("/")[2].casefold().startswith(end)
    )


def shown(moment: datetime, zone: tzinfo) -> Wall:
    """Return the wall time in a zone at a moment."""
    return moment.astimezone(zone).replace(tzinfo=None)


def moment_of(wall: Wall, zone: tzinfo) -> datetime:
    """Return the first moment, in UTC, at which the clock of a zone shows a wall time or a later one."""
    if zone is UTC:
        return wall.replace(tzinfo=UTC)
    moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if shown(moment, zone) == wall:
        return moment
    # The two readings of a wall time that does not exist are the moments before and after the change.
    return _change(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), moment, zone)


def _change(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """Return the moment, to the second, from which the zone has not the offset that it has at `before`."""
    offset = before.astimezone(zone).utcoffset()
    low, high = 0, int((after - before) / SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        same = (before + middle * SECOND).astimezone(zone).utcoffset() == offset
        low, high = (middle, high) if same else (low, middle)
    return before + high * SECOND


def from_moment(field: str, moment: object) -> datetime | None:
    """Return a moment after which a rule is asked for its next time; None if no time can follow it.

    InvalidRequest if it is no aware datetime.
    """
    asked = check_moment(field, moment)
    if asked.year > LAST_WALL_YEAR:
        return None
    return max(asked, FIRST_MOMENT)


def first_fixed(moment: datetime, zone: tzinfo, walls: Callable[[Wall], Iterable[Wall]]) -> datetime | None:
    """Return the first moment of fixed wall times after `moment`; `walls` yields them from a time on."""
    for wall in walls(shown(moment, zone).replace(microsecond=0)):
        found = moment_of(wall, zone)
        if found > moment:
            return found
    return None


def first_elapsed(
    moment: datetime, zone: tzinfo, next_wall: Callable[[Wall], Wall | None]
) -> datetime | None:
    """Return the first moment after `moment` whose wall time fits; `next_wall` gives the first from one on.

    A wall time that the clock skips does not fit; one that it shows twice fits twice.
    """
    at = moment.replace(microsecond=0) + SECOND
    while True:
        wall = shown(at, zone).replace(fold=0)
        fitting = next_wall(wall)
        if fitting is None:
            return None
        found = at + (fitting - wall)
        change = _first_change(at, found, zone)
        if change is None:
            return found
        # It may lead to another wall time, or back to one that has been and fits.
        at = change


def _first_change(moment: datetime, end: datetime, zone: tzinfo) -> datetime | None:
    """Return the first moment up to `end` at which a clock has been changed; None if it is not."""
    offset = moment.astimezone(zone).utcoffset()
    while moment < end:
        later = min(moment + _APART, end)
        if later.astimezone(zone).utcoffset() != offset:
            return _change(moment, later, zone)
        moment = later
    return None
