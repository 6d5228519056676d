"""Output of results and errors, for people and machines.

Rule: results on stdout, everything else on stderr. Text from the database moves no cursor: its control
characters are shown, not sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

_WIDTH_OF_FILES = 140


def stdout() -> Console:
    """Return a console for results; made anew each time, because tests change the stream."""
    return _console(stderr=False)


def stderr() -> Console:
    """Return a console for everything but results."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH_OF_FILES)
    return console


def error_line(text: str) -> None:
    """Print an error on stderr."""
    line = Text.assemble(("error: ", "bold red"), visible(text, keep_lines=True))
    stderr().print(line, soft_wrap=True)


def warning(text: str) -> None:
    """Print a warning on stderr."""
    line = Text.assemble(("warning: ", "bold yellow"), visible(text))
    stderr().print(line, soft_wrap=True)


def note(text: str) -> None:
    """Print a hint on stderr."""
    stderr().print(Text(visible(text), style="dim"), soft_wrap=True)


def print_json(value: Any, *, machine: bool) -> None:
    """Print a value as JSON: on one line for machines, indented and coloured in a terminal."""
    console = stdout()
    if machine or not console.is_terminal:
        console.print(Text(to_json(value)), soft_wrap=True)
    else:
        console.print_json(to_json(value), ensure_ascii=False)


def print_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are; a terminal gets their Python form (b'…')."""
    console = stdout()
    if console.is_terminal:
        console.print(Text(shown(data)), soft_wrap=True)
    else:
        typer.get_binary_stream("stdout").write(data)


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


def clock(moment: datetime | None) -> str:
    """Return a time in this machine's zone, to the second; empty for None."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
