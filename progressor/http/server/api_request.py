"""Requests as routes see them: the caller, the place among other requests, the headers of the answer, and
the facts by which logs name a request.

Rule: a caller's text is logged only if it is short, and the log escapes it; a call's name only if the
namespace may have such a call.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Self, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope as AsgiScope, Send

from progressor.acts import Way, acting, as_line
from progressor.client.client import Client
from progressor.http.server.auth.client_certificates import peer_of
from progressor.http.server.auth.principals import NOBODY
from progressor.http.server.auth.rate_limit import RateStatus
from progressor.http.server.auth.scopes import Access, require
from progressor.http.server.concurrency_limit import Place, Places
from progressor.http.server.memory import Memory
from progressor.http.server.options import HttpOptions
from progressor.http.server.problems import Refusal
from progressor.http.server.request_headers import Preferences, RequestHeaders, accepts, preferences_of
from progressor.http.server.schema_cache import NamespaceSchemas
from progressor.http.server.waits import DrainableWaits
from progressor.http.wire.problems import NOT_ACCEPTABLE
from progressor.inputs import MAX_ID_LENGTH
from progressor.rights import Scope

REQUEST_ID = "X-Request-Id"

_HEADER = REQUEST_ID.lower().encode()
_SANE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:+/=@-]{0,127}")
_TEXTS = frozenset({"namespace", "process_id"})
_PARAMETERS = _TEXTS | {"task_id", "bulk_id"}
# Seconds; enough for one look at a task.
_AT_ONCE = 0.001

T = TypeVar("T")


class RouteContext(NamedTuple):
    """The context that the routes of one application share."""

    client: Client
    options: HttpOptions
    access: Access
    publications: NamespaceSchemas
    waits: DrainableWaits
    places: Places
    watch_places: Places

    @classmethod
    def of(cls, client: Client, access: Access, options: HttpOptions | None) -> Self:
        """Return the context of a new application over this client."""
        options = options or HttpOptions()
        memory = Memory(options.max_memory_bytes)
        places = Places(options.max_requests, memory)
        watch_places = Places(options.max_watches, memory, what="watches are open")
        schemas, waits = NamespaceSchemas(client), DrainableWaits()
        return cls(client, options, access, schemas, waits, places, watch_places)


class ApiRequest(Request):
    """A request of the API. `answer_headers` are those of its answer, be it a good one or a problem."""

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self._by_name = RequestHeaders(scope)
        self.server: RouteContext = scope["app"].state.server
        self.place = Place(self.server.places)
        self.facts = facts_of(scope)
        self.caller = NOBODY
        self.rate: RateStatus | None = None
        self.answer_headers: dict[str, str] = {}

    @property
    def headers(self) -> RequestHeaders:
        """The headers of the request."""
        return self._by_name

    async def admit(self, scope: Scope | None, namespace: str | None) -> None:
        """Find its caller; raise Refusal if that is unknown, asks too often, or lacks the scope."""
        self.caller, self.rate = await self.server.access.admit(self)
        if self.rate is not None:
            self.rate.check()
        if scope is not None:
            require(self.caller, scope, namespace)
        self.facts["caller"] = self.caller.name

    def reads_failures(self, namespace: str | None) -> bool:
        """Return whether the caller may read the texts of handlers' failures."""
        return self.caller.may(Scope.ERRORS_READ, namespace)

    def acting(self, way: Way, reason: str | None) -> AbstractContextManager[None]:
        """Return the block in which the audit notes what is done as done by the caller."""
        return acting(as_line(self.caller.name), reason=reason, origin=as_line(peer_of(self)), way=way)

    def move_to(self, places: Places) -> None:
        """Give the place of the request to others, and take one of these; raise Refusal if none is free."""
        self.place.leave()
        self.place = Place(places)
        self.place.enter()
        self.place.claim(self.caller.name)

    def require_acceptable(self, media_type: str) -> None:
        """Raise Refusal if the caller does not accept an answer of this type: before anything is done."""
        if not accepts(self.headers, media_type):
            raise Refusal(NOT_ACCEPTABLE, f"the answer is {media_type}")

    def seconds_to_wait(self, wanted: Preferences, default: float | None = None) -> float:
        """Return for how long the caller prefers to wait, as far as the server does."""
        options = self.server.options
        if wanted.respond_async:
            return 0.0
        seconds = float(wanted.wait) if wanted.wait is not None else default
        return min(options.wait if seconds is None else seconds, options.longest_wait)

    def apply(self, wanted: Preferences) -> None:
        """Have the answer say which preference was applied."""
        applied = wanted.applied(self.server.options.longest_wait)
        if applied is not None:
            self.answer_headers["Preference-Applied"] = applied

    async def waited(
        self,
        answer: Callable[[float], Awaitable[T]],
        *,
        preferences: Preferences | None = None,
        default: float | None = None,
    ) -> T:
        """Wait for an answer within the preferred time and the server's drain, and return it.

        The applied preference becomes a header of the answer. `default` is in seconds, for a request
        without one. Raise ReplyTimeout or TimeoutError if there is no answer by then.
        """
        wanted = preferences or preferences_of(self.headers)
        seconds = self.seconds_to_wait(wanted, default)
        self.apply(wanted)
        async with self.server.waits.waiting(self.receive):
            return await answer(max(seconds, _AT_ONCE))


def request_id_of(scope: AsgiScope) -> bytes:
    """Return the id of the request, or a new one if it has none, two, or one that is no plain text."""
    given = [value for name, value in scope["headers"] if name == _HEADER]
    if len(given) == 1 and _SANE.fullmatch(given[0]):
        return bytes(given[0])
    return secrets.token_hex(8).encode()


def facts_of(scope: AsgiScope) -> dict[str, Any]:
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
