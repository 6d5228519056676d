"""Texts for people: values, counts, durations.

Rule: text from the database moves no cursor: its control characters are shown, not sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import unified_diff
from itertools import islice
from typing import Any

from progressor.monitoring import MOST_COUNTED

# A number of units; a longer time is shown in the next larger unit.
_ENOUGH = 120
# Characters of two texts together: comparing takes the square of their lines.
_MOST_COMPARED = 100_000


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON text: times in ISO 8601, durations in seconds; TypeError for other types."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case _:
            # A view forgot to convert it, which is a bug: an error shows it, a repr would hide it.
            raise TypeError(f"{type(value).__name__} has no JSON form")


def shown(value: Any, *, indent: int | None = None) -> str:
    """Return a value as text for people: JSON, or the Python form of bytes (b'…')."""
    return repr(value) if isinstance(value, bytes) else to_json(value, indent=indent)


def pretty(value: Any) -> str:
    """Return a value as text for people: JSON on many lines, or the Python form of bytes."""
    return visible(shown(value, indent=2), keep_lines=True)


def changed_lines(before: str, after: str) -> str:
    """Return the lines that differ, with their neighbours; a text too long to be compared as it is then."""
    if len(before) + len(after) > _MOST_COMPARED:
        return "" if before == after else after
    lines = unified_diff(before.splitlines(), after.splitlines(), lineterm="")
    # The first two name files.
    return "\n".join(islice(lines, 2, None))


def visible(text: str, *, keep_lines: bool = False) -> str:
    """Return a text with its control characters shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (keep_lines and c == "\n") else repr(c)[1:-1] for c in text)


def short(value: Any, limit: int = 60) -> str:
    """Return a value on one line, cut at `limit` characters; empty for None."""
    if value is None:
        return ""
    text = visible(value if isinstance(value, str) else shown(value))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def rule_text(rule: Mapping[str, Any]) -> str:
    """Return the rule of a timer, as JSON has it, on one line."""
    if rule.keys() == {"seconds"}:
        return f"{rule['seconds']:g} s"
    return visible(" ".join(str(value) for value in rule.values() if value is not True))


def recurs_text(args: Any) -> str | None:
    """Return the rule of a recurring timer, by the arguments of its task, on one line; None for others."""
    match args:
        case {"every": dict(rule), "nominal": str(), "passed": int(passed)}:
            return f"every {rule_text(rule)}" + (f", {passed:,} passed over" if passed else "")
        case _:
            return None


def through(time: timedelta | None, *, at_least: bool) -> str:
    """Return the time that waiting requests will take, as text; `unknown` for None."""
    if time is None:
        return "unknown"
    return f"{duration(time)}{' or more' if at_least else ''}"


def count(number: int) -> str:
    """Return a count as text, 1,000+ above its bound."""
    return f"{MOST_COUNTED:,}+" if number > MOST_COUNTED else f"{number:,}"


def number_of(number: int, noun: str) -> str:
    """Return a number with its noun: 1 process, 2 processes."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def duration(age: timedelta) -> str:
    """Return a duration as text, in the smallest unit with fewer than 120 of them."""
    seconds = age.total_seconds()
    for unit, name in ((1, "s"), (60, "min"), (3600, "h")):
        if seconds < _ENOUGH * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"
