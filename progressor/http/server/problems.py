"""Problems as responses: the answer to every request that failed or was refused.

Rule: the text of a handler's failure is for callers with the scope errors:read alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response

from progressor.errors import HandlerFailed, InvalidRequest, ProcessBroken, ProgressorError
from progressor.http.wire.problems import MEDIA_TYPE, RETRY_AFTER_SECONDS, Kind, kind_of, members_of

# The attributes of errors that hold the text of a handler's failure.
_OF_FAILURES = ("error", "cause")


class Refusal(Exception):
    """Error: HTTP itself refuses the request. Any part of the server raises it; a problem answers it."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = dict(members or {})

    def answer(self) -> Response:
        """Return the problem that answers the request."""
        return problem(self.kind, self.detail, members=self.members, headers=self.headers)


def not_now(kind: Kind, detail: str) -> Refusal:
    """Return the refusal of a request that may soon be sent again."""
    return Refusal(kind, detail, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


def problem_of(error: ProgressorError, *, shows_failures: bool, **more: str) -> Response:
    """Return the problem of an error, with `more` members.

    Without `shows_failures` it lacks the text of a handler's failure.
    """
    kind, members, detail = kind_of(error), members_of(error) | more, str(error)
    if not shows_failures and isinstance(error, HandlerFailed | ProcessBroken):
        detail = f"{kind.title}; what failed is for those with the scope errors:read"
        members = {name: value for name, value in members.items() if name not in _OF_FAILURES}
    if not members.get("errors") and isinstance(error, InvalidRequest) and error.field is not None:
        first, *rest = error.field.split(".")
        # A field of the arguments points into the body.
        pointer = pointer_of(rest if first == "args" else [first, *rest])
        members["errors"] = [{"pointer": pointer, "rule": detail}]
    headers = {}
    if kind.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return problem(kind, detail, members=members, headers=headers)


def pointer_of(parts: Iterable[str | int]) -> str:
    """Return the JSON pointer of a path into a document."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def problem(
    kind: Kind,
    detail: str,
    *,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem document of this kind, with further members."""
    document = {
        **(members or {}),
        "type": kind.type,
        "title": kind.title,
        "status": kind.status,
        "detail": detail,
    }
    return Response(to_json(document), kind.status, dict(headers or {}), MEDIA_TYPE)
