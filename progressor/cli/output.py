"""Output of results and errors, for people and machines.

Rule: results on stdout, everything else on stderr. Text from the database moves no cursor: its control
characters are shown, not sent.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from progressor.codecs.envelope import is_sealed
from progressor.texts import shown, to_json, visible

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


def note_sealed(*values: Any) -> None:
    """Say which setting decrypts values, if one of these is encrypted."""
    if any(isinstance(each, bytes) and is_sealed(each) for each in values):
        note("encrypted values stand here as they are stored: PROGRESSOR_APP names the app with their keys")


def print_json(value: Any) -> None:
    """Print a value as JSON on one line, for machines."""
    stdout().print(Text(to_json(value)), soft_wrap=True)


def print_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are; a terminal gets their Python form (b'…')."""
    console = stdout()
    if console.is_terminal:
        console.print(Text(shown(data)), soft_wrap=True)
    else:
        typer.get_binary_stream("stdout").write(data)


def print_answer(answer: Any, done: str, *, machine: bool) -> None:
    """Print the answer as JSON, or its bytes; without one, the text `done`, or `null` for machines.

    The JSON is on one line, but indented and coloured for people in a terminal.
    """
    if answer is None and not machine:
        stdout().print(visible(done), soft_wrap=True)
    elif isinstance(answer, bytes):
        print_bytes(answer)
        note_sealed(answer)
    elif machine or not stdout().is_terminal:
        print_json(answer)
    else:
        stdout().print_json(to_json(answer), ensure_ascii=False)


def clock(moment: datetime | None) -> str:
    """Return a time in this machine's zone, to the second; empty for None."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
