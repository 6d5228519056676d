"""Errors as one line and an exit status: what is wrong, and what to do.

Rule: 1: refused, or failed. 75 (EX_TEMPFAIL): not now; the same command with the same idempotency key is
safe to repeat. 77 (EX_NOPERM): the role lacks a privilege, which somebody must grant first. 2: the command
line, a setting or the request is wrong, and would be wrong again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import typer

from progressor import errors
from progressor.cli.output import error_line
from progressor.cli.spelling import spelled
from progressor.errors import InvalidRequest, ProgressorError, ReplyTimeout, StorageUnavailable
from progressor.loggers import without_passwords
from progressor.texts import to_json

REFUSED, WRONG, NOT_NOW, DENIED = 1, 2, 75, 77

EXIT_STATUS = (
    ("0", "it worked"),
    ("1", "it was refused or it failed; the line on stderr says why"),
    ("2", "the command line, a setting or the request is wrong: change it before you repeat it"),
    ("75", "no answer in time, or PostgreSQL is away: repeat it with the same --idempotency-key"),
    ("77", "the database refuses the role what it needs; the line on stderr says what to grant"),
    ("130, 143", "left on Ctrl-C or SIGTERM; services leave at the first with 0, at the second at once"),
)

_HINTS: Mapping[type[ProgressorError], str] = {
    errors.NamespaceNotFound: "`progressor worker APP` is one",
    errors.NamespaceInUse: "`progressor workers` and `progressor search --namespace NAME` list them",
    errors.ScheduleNotFound: "`progressor schedules` lists those that there are",
    errors.ProcessNotFound: "`progressor search` lists those that there are",
    errors.ProcessAlreadyExists: "take another id, or look at it with `progressor get`",
    errors.ProcessBroken: "see why with `progressor trace`, then `progressor repair` or `simple-repair`",
    errors.RepairConflict: "ask again in a moment; `progressor trace` shows a repair that runs",
    errors.ProcessNotBroken: "there is nothing to repair",
    errors.TaskNotEnded: "`progressor trace` shows what became of it",
    errors.BulkNotFound: "`progressor bulks` lists those that there are",
    errors.KeyMissing: "give the keyring of this command that key",
    errors.HandlerFailed: "see `progressor trace` and the log of the worker",
}


def report(error: ProgressorError, *, machine: bool, spelling: Mapping[str, str] | None = None) -> int:
    """Print the error on stderr, its parameters in this spelling, and return the exit status for it."""
    text = without_passwords(_spelled(error, spelling or {}))
    if machine:
        typer.echo(to_json(_fields(error, text)), err=True)
    else:
        hint = _hint(error)
        error_line(f"{text}; {hint}" if hint else text)
    match error:
        case StorageUnavailable(is_denied=True):
            return DENIED
        case ReplyTimeout() | StorageUnavailable():
            return NOT_NOW
        case errors.IdempotencyConflict():
            return REFUSED
        case InvalidRequest():
            return WRONG
        case _:
            return REFUSED


@contextmanager
def examining(*, machine: bool) -> Iterator[None]:
    """Run an examination; what it could not look at is no status 1, which means that it found something."""
    try:
        yield
    except ProgressorError as error:
        status = report(error, machine=machine)
        raise typer.Exit(WRONG if status == REFUSED else status) from None


def _spelled(error: ProgressorError, spelling: Mapping[str, str]) -> str:
    match error:
        case InvalidRequest():
            return spelled(str(error), spelling, field=error.field)
        case ReplyTimeout() | StorageUnavailable():
            return spelled(str(error), spelling)
        case _:
            # The text of a handler, which is free to write name=.
            return str(error)


def _fields(error: ProgressorError, text: str) -> dict[str, object]:
    facts = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return {"error": type(error).__name__, "message": text, **facts}


def _hint(error: ProgressorError) -> str:
    if isinstance(error, errors.Rejected) and error.details:
        return to_json(error.details)
    return next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "")
