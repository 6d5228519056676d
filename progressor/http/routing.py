"""What routes are made of: a router that knows the scope of each, their parameters, and what they share.

Rule: a route without a scope cannot be built.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Path, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.types import Receive, Scope, Send

from progressor.client.client import Client
from progressor.errors import InvalidRequest
from progressor.handlers.timer_calls import PREFIX
from progressor.http.access import Caller, scope_of
from progressor.http.options import HttpOptions
from progressor.http.publications import Publications
from progressor.http.segments import text_of
from progressor.http.waiting import Waits
from progressor.model import LAST_ID

_ID = "Percent-encoded UTF-8, or ~ and base64url of it."


class Route(APIRoute):
    """A route that was declared with exactly one scope."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        super().__init__(path, endpoint, **kwargs)
        scope = scope_of(self.dependant.dependencies)
        if scope is None:
            raise TypeError(f"{self.name} needs one scope: declare its caller with needs(…), or public")
        self.scope = scope
        self._taken = Taken.of(self.dependant, endpoint)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for this path."""
        taken = self._taken
        if taken is None or not taken.is_all(scope) or scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        request = Request(scope, receive, send)
        answer = await self.endpoint(**await taken.values(request))
        await answer(scope, receive, send)


class Taken:
    """What an endpoint takes from a request that has no query.

    It is what FastAPI's own way finds, which also reads queries, headers and bodies. That way takes as long
    as all else together that HTTP needs for a call.
    """

    def __init__(self, dependant: Dependant) -> None:
        self._dependant = dependant
        queries = [field for field in dependant.query_params if not field.field_info.is_required()]
        self._defaults = {field.name: field.default for field in queries}

    @classmethod
    def of(cls, dependant: Dependant, endpoint: Callable[..., Any]) -> Taken | None:
        """What an endpoint takes that was analysed; None if FastAPI alone can find all of it."""
        taken = cls(dependant)
        # Each is called with the request, and nothing else.
        if any(map(_takes_more, dependant.dependencies)):
            return None
        return taken if taken.names >= signature(endpoint).parameters.keys() else None

    @property
    def names(self) -> set[str | None]:
        """The parameters that are found here."""
        named = {each.name for each in self._dependant.dependencies}
        segments = {field.name for field in self._dependant.path_params}
        return {self._dependant.request_param_name, *self._defaults, *named, *segments}

    def is_all(self, scope: Scope) -> bool:
        """Whether nothing of this request is left to be read."""
        return not (self._defaults and scope["query_string"])

    async def values(self, request: Request) -> dict[str, Any]:
        """The arguments of the endpoint; RequestValidationError if a segment is none of them."""
        values: dict[str, Any] = dict(self._defaults)
        if self._dependant.request_param_name is not None:
            values[self._dependant.request_param_name] = request
        for each in self._dependant.dependencies:
            # First of all, for one of them lets the caller in.
            found = await each.call(request)  # type: ignore[misc]
            if each.name is not None:
                values[each.name] = found
        errors: list[Any] = []
        for field in self._dependant.path_params:
            segment = request.path_params[field.alias]
            values[field.name], faults = field.validate(segment, loc=("path", field.alias))
            errors += faults
        if errors:
            raise RequestValidationError(errors)
        return values


def _takes_more(dependency: Dependant) -> bool:
    found = (
        *dependency.dependencies,
        *dependency.path_params,
        *dependency.query_params,
        *dependency.header_params,
        *dependency.cookie_params,
        *dependency.body_params,
    )
    return dependency.request_param_name is None or bool(found)


def router() -> APIRouter:
    """A router whose routes have scopes, and answer with responses of their own."""
    return APIRouter(route_class=Route)


NamespaceName = Annotated[
    str, Path(description="The namespace."), AfterValidator(partial(text_of, field="namespace"))
]
ProcessId = Annotated[
    str,
    Path(description=f"The process's id, any text of 1 to 256 characters. {_ID}"),
    AfterValidator(partial(text_of, field="process_id")),
]


def _call_name(segment: str) -> str:
    name = text_of(segment, "name")
    if name.startswith(PREFIX):
        # They need another scope.
        raise InvalidRequest(
            f"name must not begin with {PREFIX}: timers have their own address", field="name"
        )
    return name


CallName = Annotated[str, Path(description=f"The call's name. {_ID}"), AfterValidator(_call_name)]
TaskId = Annotated[int, Path(ge=1, le=LAST_ID, description="The task's id.")]


class Server(NamedTuple):
    """What the routes of one application share."""

    client: Client
    options: HttpOptions
    publications: Publications
    waits: Waits


async def _server(request: Request) -> Server:
    # Not async, it would be run in a thread.
    server: Server = request.app.state.server
    return server


TheServer = Annotated[Server, Depends(_server)]


def reads_failures(caller: Caller, namespace: str | None) -> bool:
    """Whether a caller may read what failed handlers said."""
    return caller.may("errors:read", namespace)
