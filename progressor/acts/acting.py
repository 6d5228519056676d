"""The operator on whose behalf code runs: named around the code, and noted in the audit."""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple

from progressor.acts.act import Act, AuditVerb, Way
from progressor.errors import InvalidRequest
from progressor.inputs import MAX_ID_LENGTH, check_text


class _Acting(NamedTuple):
    """The operator on whose behalf code runs."""

    actor: str | None = None
    reason: str | None = None
    origin: str | None = None
    way: Way = Way.PYTHON


_acting: ContextVar[_Acting] = ContextVar("progressor_acting", default=_Acting())  # noqa: B039 - frozen


class _ActingBlock:
    """The block of code that runs on behalf of an operator."""

    __slots__ = ("_operator", "_token")

    def __init__(self, operator: _Acting) -> None:
        self._operator = operator

    def __enter__(self) -> None:
        self._token = _acting.set(self._operator)

    def __exit__(self, *_: object) -> None:
        _acting.reset(self._token)


def acting(
    actor: str | None = None,
    *,
    reason: str | None = None,
    origin: str | None = None,
    way: Way | None = None,
) -> AbstractContextManager[None]:
    """Have what operators do in this block noted as done by `actor`, from `origin`, for `reason`.

    What is None stays as it is around the block. It holds for the code and the tasks of the block, and
    over HttpClient the reason alone: the API knows who asks. Raise InvalidRequest for a text of more than
    256 characters, an empty one, or one with control characters.
    """
    around = _acting.get()
    return _ActingBlock(
        _Acting(
            around.actor if actor is None else check_line("actor", actor),
            around.reason if reason is None else check_line("reason", reason),
            around.origin if origin is None else check_line("origin", origin),
            around.way if way is None else way,
        )
    )


def reason_of_block() -> str | None:
    """Return the reason of the innermost `acting` around this code; None without any."""
    return _acting.get().reason


def is_in_console() -> bool:
    """Return whether a form of the console runs this code."""
    return _acting.get().way is Way.CONSOLE


def act_of(verb: AuditVerb, *, default: str | None, step: str | None, reason: str | None = None) -> Act:
    """Return an act of the code that calls this.

    `default` is the actor if no `acting` names one; `step` the process whose handler acts, if one does.
    """
    around = _acting.get()
    drawn = secrets.randbits(63)
    if step is not None:
        # Its code runs in a task that may be of anybody's request: the step is who acts.
        return Act(verb, drawn, as_line(step), Way.STEP, None, reason)
    actor = default if around.actor is None else around.actor
    return Act(verb, drawn, actor, around.way, around.origin, around.reason if reason is None else reason)


def as_line(text: str) -> str:
    """Return a text as an entry can have it: its control characters escaped, and cut at 256 characters."""
    line = text if text.isprintable() else text.encode("unicode_escape").decode()
    return line if len(line) <= MAX_ID_LENGTH else f"{line[: MAX_ID_LENGTH - 1]}…"


def check_line(field: str, value: object) -> str:
    """Return a text of one line; InvalidRequest if it has control characters, or is no text of 1 to 256."""
    text = check_text(field, value)
    if not text.isprintable():
        raise InvalidRequest(f"{field} must have printable characters alone, on one line", field=field)
    return text
