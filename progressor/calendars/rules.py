"""Rules and their nominal times, as a timer stores them, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time, timedelta, timezone
from typing import Any, TypeAlias

from progressor.calendars.cron import Cron
from progressor.calendars.monthly import Monthly
from progressor.calendars.rrule import RRule
from progressor.calendars.wall_clock import moment_of, zone_of
from progressor.errors import InvalidRequest
from progressor.inputs import check_seconds

_NOTHING, _MINUTE = timedelta(), timedelta(minutes=1)

Rule: TypeAlias = Cron | RRule | Monthly


def json_of(rule: Rule | timedelta) -> dict[str, Any]:
    """Return a rule, or a plain period of at most ten years, as JSON has it; InvalidRequest otherwise."""
    if isinstance(rule, timedelta):
        return {"seconds": check_seconds("every", rule)}
    if isinstance(rule, Cron | RRule | Monthly):
        return rule.as_json()
    raise InvalidRequest(
        f"every must be a timedelta, Cron, RRule or Monthly, not {type(rule).__name__}", field="every"
    )


def rule_of(json: Mapping[str, Any]) -> Rule | timedelta:
    """Return the rule, or the plain period, that JSON stands for; InvalidRequest if it stands for none."""
    match {**json} if isinstance(json, Mapping) else json:
        case {"cron": text, "tz": tz, **more} if {*more} <= {"seconds"}:
            return Cron(text, tz=tz, seconds=more.get("seconds", False))
        case {"rrule": text, "start": start, "tz": tz, **more} if not more:
            return RRule(text, _start(start, tz), tz=tz)
        case {"day": day, "at": at, "tz": tz, **more} if not more:
            return Monthly(day, at=_time(at), tz=tz)
        case {"seconds": seconds, **more} if not more:
            period = timedelta(seconds=check_seconds("seconds", seconds))
            check_seconds("seconds", period)
            return period
    raise InvalidRequest(
        'a rule must be {"cron", "tz"}, {"rrule", "start", "tz"}, {"day", "at", "tz"} or {"seconds"}',
        field="every",
    )


def on_clock(rule: Rule | timedelta, moment: datetime) -> datetime:
    """Return a moment with the offset from UTC that the clock of a rule has then."""
    if isinstance(rule, timedelta) or rule.tz == "UTC":
        return moment
    offset = moment.astimezone(zone_of(rule.tz)).utcoffset() or _NOTHING
    # JSON has no seconds of an offset; zones have such before they had laws.
    return moment.astimezone(timezone(offset - offset % _MINUTE))


def last_shown(rule: Rule | timedelta, nominal: datetime) -> datetime:
    """Return the last moment at which the clock of a rule shows a time that `on_clock` returned.

    It is later than `nominal` if a law has set the clock back since: it shows that time once more.
    """
    if isinstance(rule, timedelta) or rule.tz == "UTC" or (isinstance(rule, Cron) and not rule.is_fixed):
        return nominal
    return max(nominal, moment_of(nominal.replace(tzinfo=None), zone_of(rule.tz)))


def nominal_of(rule: Rule | timedelta, stored: str) -> datetime:
    """Return a nominal time as a timer stores it; the first releases stored it in UTC, with a Z."""
    nominal = datetime.fromisoformat(stored)
    return on_clock(rule, nominal) if stored.endswith("Z") else nominal


def _start(text: object, tz: object) -> datetime:
    try:
        start = datetime.fromisoformat(str(text))
    except ValueError:
        raise InvalidRequest(f"start must be a time in ISO 8601, not {text!r:.40}", field="start") from None
    return start if start.tzinfo is not None else start.replace(tzinfo=zone_of(tz))


def _time(text: object) -> time:
    try:
        return time.fromisoformat(str(text))
    except ValueError:
        raise InvalidRequest(
            f"at must be a time such as '09:00:00', not {text!r:.40}", field="at"
        ) from None
