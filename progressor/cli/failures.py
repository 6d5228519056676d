"""Errors as one line and an exit status: what is wrong, and what to do.

Rule: 1 says no; 75 (EX_TEMPFAIL) says not now: the same command with the same idempotency key is safe to
repeat; 2 is a command line that cannot be understood.
"""

from __future__ import annotations

from collections.abc import Mapping

import typer

from progressor.cli.output import error_line, to_json
from progressor.errors import (
    HandlerFailed,
    NamespaceNotFound,
    ProcessAlreadyExists,
    ProcessBroken,
    ProcessNotBroken,
    ProcessNotFound,
    ProgressorError,
    Rejected,
    ReplyTimeout,
    StorageUnavailable,
)
from progressor.logs import without_passwords

REFUSED, NOT_NOW = 1, 75

EXIT_STATUS = (
    ("0", "it worked"),
    ("1", "it was refused or it failed; the line on stderr says why"),
    ("2", "the command line or a setting is wrong"),
    ("75", "no answer in time, or no database: repeat it with the same --idempotency-key"),
    ("130, 143", "left at once, on a second Ctrl-C or SIGTERM"),
)

_HINTS: Mapping[type[ProgressorError], str] = {
    NamespaceNotFound: "`progressor worker APP` is one",
    ProcessNotFound: "`progressor search` lists those that there are",
    ProcessAlreadyExists: "take another id, or look at it with `progressor get`",
    ProcessBroken: "see why with `progressor trace`, then `progressor repair` or `simple-repair`",
    ProcessNotBroken: "there is nothing to repair",
    HandlerFailed: "see `progressor trace` and the log of the worker",
}


def report(error: ProgressorError, *, machine: bool) -> int:
    """Print the error on stderr; the exit status for it."""
    if machine:
        typer.echo(to_json(_fields(error)), err=True)
    else:
        hint = _hint(error)
        text = without_passwords(str(error))
        error_line(f"{text}; {hint}" if hint else text)
    return NOT_NOW if isinstance(error, ReplyTimeout | StorageUnavailable) else REFUSED


def _fields(error: ProgressorError) -> dict[str, object]:
    facts = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return {"error": type(error).__name__, "message": without_passwords(str(error)), **facts}


def _hint(error: ProgressorError) -> str:
    if isinstance(error, Rejected) and error.details:
        return to_json(error.details)
    return next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "")
