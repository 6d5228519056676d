"""How results and errors reach people and machines.

Rule: results on stdout, everything else on stderr. What comes from the database moves no cursor: control
characters are shown, not sent.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

_WIDTH_OF_FILES = 140


def stdout() -> Console:
    """Where results go; made anew each time, because tests change the stream."""
    return _console(stderr=False)


def stderr() -> Console:
    """Where all else goes."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH_OF_FILES)
    return console


def error_line(text: str) -> None:
    """Say what is wrong, on stderr."""
    line = Text.assemble(("error: ", "bold red"), visible(text, keep_lines=True))
    stderr().print(line, soft_wrap=True)


def warning(text: str) -> None:
    """Say what is probably a mistake, on stderr."""
    line = Text.assemble(("warning: ", "bold yellow"), visible(text))
    stderr().print(line, soft_wrap=True)


def note(text: str) -> None:
    """Say something by the way, on stderr."""
    stderr().print(Text(visible(text), style="dim"), soft_wrap=True)


def print_json(value: Any, *, machine: bool) -> None:
    """Print a value as JSON: on one line for machines, indented and coloured in a terminal."""
    console = stdout()
    if machine or not console.is_terminal:
        console.print(Text(to_json(value)), soft_wrap=True)
    else:
        console.print_json(to_json(value), ensure_ascii=False)


def print_bytes(data: bytes) -> None:
    """Write bytes as they are; a terminal gets them as Python writes them."""
    console = stdout()
    if console.is_terminal:
        console.print(Text(shown(data)), soft_wrap=True)
    else:
        typer.get_binary_stream("stdout").write(data)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON text: times in ISO 8601, durations in seconds."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case _:
            # A view forgot to say how: a bug, and better seen than printed as a repr.
            raise TypeError(f"{type(value).__name__} has no JSON form")


def shown(value: Any, *, indent: int | None = None) -> str:
    """A value as people read it: JSON, and bytes as Python writes them."""
    return repr(value) if isinstance(value, bytes) else to_json(value, indent=indent)


def visible(text: str, *, keep_lines: bool = False) -> str:
    """A text with its control characters shown."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (keep_lines and c == "\n") else repr(c)[1:-1] for c in text)


def short(value: Any, limit: int = 60) -> str:
    """A value on one line of a table."""
    if value is None:
        return ""
    text = visible(value if isinstance(value, str) else shown(value))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def clock(moment: datetime | None) -> str:
    """A time as this machine's user reads it."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
