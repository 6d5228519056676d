"""The facts by which logs name a request: its id, and the process, the call and the task that it is for.

Rule: a caller's text is logged only if it is short, and the log escapes it; a call's name only if the
namespace may have such a call.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from starlette.types import Scope

from progressor.model import MAX_ID_LENGTH

REQUEST_ID = "X-Request-Id"

_HEADER = REQUEST_ID.lower().encode()
_SANE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:+/=@-]{0,127}")
_TEXTS = frozenset({"namespace", "process_id"})
_PARAMETERS = _TEXTS | {"task_id", "bulk_id"}


def request_id_of(scope: Scope) -> bytes:
    """Return the id of the request, or a new one if it has none, two, or one that is no plain text."""
    given = [value for name, value in scope["headers"] if name == _HEADER]
    if len(given) == 1 and _SANE.fullmatch(given[0]):
        return bytes(given[0])
    return secrets.token_hex(8).encode()


def facts_of(scope: Scope) -> dict[str, Any]:
    """Return the facts of a request, a dict to which routes and middleware add theirs."""
    facts: dict[str, Any] = scope["state"].setdefault("facts", {})
    return facts


def named_by(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that name what a request is for: namespace, process, task, bulk."""
    return {
        name: value
        for name, value in values.items()
        if name in _PARAMETERS and value is not None and (name not in _TEXTS or len(value) <= MAX_ID_LENGTH)
    }
