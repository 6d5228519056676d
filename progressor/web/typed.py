"""Texts that people type into forms: durations and moments.

Rule: a moment without an offset is one of the zone in which the browser shows all times.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from pydantic import TypeAdapter, ValidationError

from progressor.errors import InvalidRequest
from progressor.inputs import is_moment

_DURATION = TypeAdapter(timedelta)
_UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)))


def _duration_text(text: str) -> str | None:
    """Return `15m`, `3h` or `2d` as ISO 8601 has it; other texts as they are, an empty one as None."""
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in "smhd":
        return text or None
    return f"P{number}D" if unit == "d" else f"PT{number}{unit.upper()}"


def typed_time(time: timedelta | None) -> str:
    """Return a duration as somebody types it, 90d or 12h, exactly; empty for None."""
    if time is None:
        return ""
    for letter, unit in _UNITS:
        if not time % unit:
            return f"{time // unit}{letter}"
    return str(_DURATION.dump_python(time, mode="json"))


def duration_of(text: str, field: str) -> timedelta | None:
    """Return the duration of a text, None for an empty one; raise InvalidRequest if it is none."""
    stated = _duration_text(text)
    try:
        return None if stated is None else _DURATION.validate_python(stated)
    except ValidationError:
        raise InvalidRequest(f"{field} must be a duration, such as 90m, 12h or 7d", field=field) from None


def moment_of(text: str, field: str, zone: tzinfo) -> datetime | None:
    """Return the moment of a text, None for an empty one; raise InvalidRequest if it is none."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        # A time before the first year, or behind the last one, is none in other zones.
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(zone)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{field} must be a date and a time, such as 2026-01-31T09:00", field=field
        ) from None


def since_of(text: str, zone: tzinfo) -> datetime | timedelta | None:
    """Return a moment, or how long ago it is; None for an empty text, InvalidRequest if it is neither."""
    try:
        return moment_of(text, "since", zone) if is_moment(text) else duration_of(text, "since")
    except InvalidRequest:
        raise InvalidRequest(
            "since must be a date and a time, such as 2026-01-31T09:00, or a duration up to now, such as "
            "90m, 12h or 7d",
            field="since",
        ) from None
