"""The values that the texts of a command line stand for: JSON, times, durations.

Rule: a text that cannot be read is a usage error that names the option, before any request is made.
"""

from __future__ import annotations

import json
import math
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import typer
from pydantic import TypeAdapter, ValidationError

from progressor.inputs import is_moment, seconds_or_text

_PAIR = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_SPAN = re.compile(r"(\d{1,6})([wdhms])")
_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def read_json(text: str | None, hint: str) -> Any:
    """Return the value of JSON text, of `@file`, or of stdin (`-`); BadParameter if it is no JSON."""
    if text is None:
        return None
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{text} cannot be read: {error}", param_hint=hint) from None
    try:
        return _json_of(text)
    except RecursionError:
        raise typer.BadParameter("it is nested too deeply", param_hint=hint) from None
    except ValueError as error:
        raise typer.BadParameter(
            f"it is not JSON ({error}); texts stand in double quotes: '\"text\"'", param_hint=hint
        ) from None


def _json_of(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def _json_or_text(text: str) -> Any:
    try:
        return _json_of(text)
    except ValueError:
        return text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"there is no {name} in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"a double cannot hold {text:.20}")
    return number


def read_filter(texts: list[str] | None, hint: str) -> dict[str, Any] | None:
    """Return what all of these texts ask for, each as `read_object` takes it; None without any.

    BadParameter if two ask for one key.
    """
    if not texts:
        return None
    whole: dict[str, Any] = {}
    for text in texts:
        asked = read_object(text, hint) or {}
        if twice := sorted(whole.keys() & asked.keys()):
            raise typer.BadParameter(f"{twice[0]} is given twice", param_hint=hint)
        whole.update(asked)
    return whole


def read_object(text: str | None, hint: str) -> dict[str, Any] | None:
    """Return the value of JSON text as `read_json` does, or of `key=value`, a JSON value or a bare text.

    BadParameter if it is no object.
    """
    if text is not None and (pair := _PAIR.fullmatch(text)):
        return {pair[1]: _json_or_text(pair[2])}
    wanted = typer.BadParameter("it must be key=value, or a JSON object: '{\"key\": 1}'", param_hint=hint)
    if text is not None and not text.lstrip().startswith(("{", "@", "-", "null")):
        raise wanted
    value = read_json(text, hint)
    if value is not None and not isinstance(value, dict):
        raise wanted
    return value


def read_duration(text: str | None, hint: str) -> timedelta | None:
    """Return a duration given in seconds, as 90d, in ISO 8601 or hh:mm:ss; BadParameter if it is none."""
    if text is None:
        return None
    if span := _SPAN.fullmatch(text):
        return timedelta(**{_UNITS[span[2]]: int(span[1])})
    try:
        return TypeAdapter(timedelta).validate_python(seconds_or_text(text))
    except ValidationError:
        raise typer.BadParameter(
            "it must be a duration: 90d, 12h, 30m, seconds (1.5), ISO 8601 (PT1.5S) or hh:mm:ss",
            param_hint=hint,
        ) from None


def read_delay(text: str | None, hint: str) -> timedelta | None:
    """Return a duration as `read_duration` does; BadParameter if it is negative."""
    delay = read_duration(text, hint)
    if delay is not None and delay < timedelta():
        raise typer.BadParameter(
            "it must be 0 or more: a time of the past is given as one", param_hint=hint
        )
    return delay


def read_since(text: str | None) -> datetime | timedelta | None:
    """Return the time, or the duration before now, of `--since`; BadParameter if it is neither."""
    if text is None:
        return None
    try:
        begin = read_moment(text, "--since") if is_moment(text) else read_duration(text, "--since")
    except typer.BadParameter:
        raise typer.BadParameter(
            "it must be a time in ISO 8601 (2026-02-28T12:00:00+00:00), or a duration up to now: 90d, 12h, "
            "30m, seconds (1.5), ISO 8601 (PT1.5S) or hh:mm:ss",
            param_hint="--since",
        ) from None
    if isinstance(begin, datetime) and begin > datetime.now(UTC):
        raise typer.BadParameter("it must not lie ahead: nothing has happened since", param_hint="--since")
    return begin


def read_moment(text: str | None, hint: str) -> datetime | None:
    """Return a time given in ISO 8601, without an offset in this machine's zone; BadParameter if none."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            "it must be a time in ISO 8601: 2026-02-28T12:00:00+00:00", param_hint=hint
        ) from None
