"""Preconditions of requests (RFC 9110, section 13): kept by a route that documents them, else refused.

Rule: no precondition is ignored that could prevent a change. The tags of this API are weak: they compare
answers, so no change can be made to depend on one.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from progressor.http.server.problems import Refusal
from progressor.http.server.request_headers import RequestHeaders
from progressor.http.wire.problems import PRECONDITION_NOT_SUPPORTED

IF_NONE_MATCH = "If-None-Match"
SAFE = frozenset({"GET", "HEAD"})
_OF_CHANGES = ("If-Match", "If-Unmodified-Since", IF_NONE_MATCH)
# A read may ignore If-None-Match: the whole answer is right then, and a cache loses nothing.
_OF_READS = _OF_CHANGES[:2]


class Conditions:
    """The preconditions of one route: those that it keeps, and those that it refuses."""

    def __init__(self, methods: Collection[str], kept: Collection[str]) -> None:
        listed = _OF_READS if SAFE.issuperset(methods) else _OF_CHANGES
        self._refused = {name.lower(): name for name in listed if name not in kept}

    def check(self, headers: RequestHeaders) -> None:
        """Raise Refusal if a request states a precondition that this route does not keep."""
        for given in headers.names & self._refused.keys():
            name = self._refused[given]
            raise Refusal(
                PRECONDITION_NOT_SUPPORTED,
                f"{name} is not supported here, so nothing was done: ask without it",
                members={"header": name},
            )


def wants_absence(headers: Headers) -> bool:
    """Return whether a request requires that there is nothing yet: `If-None-Match: *`."""
    return headers.get(IF_NONE_MATCH, "").strip() == "*"


def tagged(request: Request, answer: Response) -> Response:
    """Return the answer with its tag, or 304 if the caller has this answer."""
    tag = f'W/"{blake2b(answer.body, digest_size=12).hexdigest()}"'
    listed = ",".join(request.headers.getlist(IF_NONE_MATCH)).split(",")
    # Compared weakly: a proxy may have made the tag a strong one.
    has = [each.strip().removeprefix("W/") for each in listed]
    if tag.removeprefix("W/") in has or "*" in has:
        return Response(status_code=304, headers={"ETag": tag})
    answer.headers["ETag"] = tag
    return answer
