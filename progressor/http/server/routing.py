"""Parts of routes: a router that knows the scope of each, their parameters, the context that they share.

Rule: a route without a scope cannot be built.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.types import Receive, Scope, Send

from progressor.client.client import Client
from progressor.errors import InvalidRequest
from progressor.handlers.timer_calls import PREFIX
from progressor.http.server.auth.scopes import PUBLIC, Caller, scope_of
from progressor.http.server.correlation import facts_of, named_by
from progressor.http.server.health_check import HealthCheck
from progressor.http.server.openapi.operations import BEARER, text_schema
from progressor.http.server.options import HttpOptions
from progressor.http.server.parameters import Parameters
from progressor.http.server.preconditions import SAFE, Conditions
from progressor.http.server.request_headers import refuse_key, require_single
from progressor.http.server.schema_cache import NamespaceSchemas
from progressor.http.server.waits import DrainableWaits
from progressor.http.wire.headers import IDEMPOTENCY_KEY
from progressor.http.wire.paths import text_of
from progressor.inputs import NAMESPACE_PATTERN
from progressor.model import LAST_ID

# No NUL, no dots alone (clients remove such a segment), no ~ in front (base64url begins so).
_ID_PATTERN = r"^(?!\.{1,2}$)[^~\u0000][^\u0000]*$"
_ID = "Percent-encoded UTF-8, or ~ and base64url of it."


class Route(APIRoute):
    """A route that was declared with exactly one scope."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        self._parameters = Parameters(endpoint)
        at_route = [each.dependency for each in kwargs.get("dependencies") or ()]
        scope = scope_of([*at_route, *self._parameters.dependencies])
        if scope is None:
            name = endpoint.__name__
            raise TypeError(f"{name} needs one scope: declare its caller with require_scope(…), or public")
        self.scope = scope
        security = [] if scope == PUBLIC else [{BEARER: [scope]}]
        kwargs["openapi_extra"] = {**(kwargs.get("openapi_extra") or {}), "security": security}
        super().__init__(path, endpoint, **kwargs)
        stated = (self.openapi_extra or {}).get("parameters", ())
        kept = {each["name"] for each in stated if each["in"] == "header"}
        self._conditions = Conditions(self.methods or (), kept)
        # A read may be repeated with or without a key.
        self._refuses_keys = IDEMPOTENCY_KEY not in kept and not SAFE.issuperset(self.methods or ())

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for this path."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        request = Request(scope, receive, send)
        values = await self._parameters.admitted(request)
        require_single(request.headers)
        self._conditions.check(request.headers)
        if self._refuses_keys:
            refuse_key(request.headers)
        given = self._parameters.values(request)
        facts_of(scope).update(named_by(given))
        answer = await self.endpoint(**values, **given)
        await answer(scope, receive, send)


def router() -> APIRouter:
    """Return a router whose routes have scopes, and answer with responses of their own."""
    return APIRouter(route_class=Route)


# The patterns are for the document alone; the text that a segment stands for is checked elsewhere.
NamespaceName = Annotated[
    str,
    Path(description="The namespace.", json_schema_extra=text_schema(NAMESPACE_PATTERN)),
    AfterValidator(partial(text_of, field="namespace")),
]
ProcessId = Annotated[
    str,
    Path(
        description=f"The process's id, any text of 1 to 256 characters. {_ID}",
        json_schema_extra=text_schema(_ID_PATTERN),
    ),
    AfterValidator(partial(text_of, field="process_id")),
]


def _call_name(segment: str) -> str:
    name = text_of(segment, "name")
    if name.startswith(PREFIX):
        # Calls that change timers need another scope.
        raise InvalidRequest(
            f"name must not begin with {PREFIX}: timers have their own address", field="name"
        )
    return name


CallName = Annotated[
    str,
    Path(
        description=f"The call's name. {_ID}",
        json_schema_extra=text_schema(rf"^(?!{PREFIX}){_ID_PATTERN[1:]}"),
    ),
    AfterValidator(_call_name),
]
TaskId = Annotated[int, Path(ge=1, le=LAST_ID, description="The task's id.")]
Fingerprint = Annotated[
    str | None,
    Query(
        pattern=r"^[A-Za-z0-9_-]{16}$",
        description="The fingerprint of the request, from the address that its answer gave.",
    ),
]


class RouteContext(NamedTuple):
    """The context that the routes of one application share."""

    client: Client
    options: HttpOptions
    publications: NamespaceSchemas
    waits: DrainableWaits
    health: HealthCheck


async def _server(request: Request) -> RouteContext:
    # Async, because `Parameters.admitted` awaits each dependency.
    server: RouteContext = request.app.state.server
    return server


TheServer = Annotated[RouteContext, Depends(_server)]


def reads_failures(caller: Caller, namespace: str | None) -> bool:
    """Return whether a caller may read the texts of handlers' failures."""
    return caller.may("errors:read", namespace)
