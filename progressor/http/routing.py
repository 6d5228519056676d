"""What routes are made of: a router that knows the scope of each, their parameters, and what they share.

Rule: a route without a scope cannot be built.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Path, Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator

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
