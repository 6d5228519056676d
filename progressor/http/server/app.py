"""The API as an ASGI application over one client.

Rule: it holds no state of requests: any number of them may stand behind one balancer.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from progressor.client.client import Client
from progressor.http.server.api_request import REQUEST_ID, RouteContext, facts_of
from progressor.http.server.auth.scopes import Access
from progressor.http.server.middleware.access_log import AccessLog
from progressor.http.server.options import HttpOptions
from progressor.http.server.problems import problem
from progressor.http.server.routers import (
    audit,
    bulks,
    feed,
    health,
    lifecycle,
    namespaces,
    openapi,
    processes,
    requests,
    retention,
    timers,
    transfers,
    watches,
)
from progressor.http.wire import problems
from progressor.loggers import Logger

log = Logger("progressor.http")


def make_app(client: Client, *, access: Access, options: HttpOptions | None = None) -> Starlette:
    """Return the API of the processes that this client reaches; it never closes the client."""
    server = RouteContext.of(client, access, options)
    rooms = (
        *(requests, lifecycle, timers, processes, watches, feed, transfers, namespaces, retention, bulks),
        *(audit, openapi, health),
    )
    app = Starlette(
        routes=[operation for room in rooms for operation in room.routes],
        # The first one is the outermost: the other sees what it changes.
        middleware=[Middleware(Plain), Middleware(AccessLog, max_lines=server.options.max_log_lines)],
        exception_handlers={HTTPException: _of_http, Exception: _of_defect},
    )
    app.router.redirect_slashes = False
    app.state.server = server
    return app


class Plain:
    """Middleware: routes see the path as it was sent, and HEAD as GET without its body.

    A route decodes the segments of its path itself.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Set in the original scope: the handler of defects stands outside, and does not see the copy.
        scope.setdefault("state", {})
        raw = scope.get("raw_path")
        seen = scope if raw is None else {**scope, "path": raw.decode("latin-1")}
        if scope["method"] != "HEAD":
            await self._app(seen, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**seen, "method": "GET", "is_head": True}, receive, send_head)


async def _of_http(request: Request, error: Any) -> Response:
    if error.status_code != problems.NO_METHOD.status:
        return problem(problems.NO_ROUTE, "there is no such path in this API: see /openapi.json")
    allowed = ", ".join(sorted(methods_of(request) | {"OPTIONS"}))
    if request.method == "OPTIONS":
        return Response(status_code=204, headers={"Allow": allowed})
    return problem(
        problems.NO_METHOD,
        f"this path does not know {request.method}, but {allowed}",
        headers={"Allow": allowed},
    )


def methods_of(request: Request) -> set[str]:
    """Return all methods that the path of this request takes, each of them a route of its own."""
    fitting = (each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE)
    methods = {method for each in fitting for method in each.methods or ()}
    return methods | ({"HEAD"} if "GET" in methods else set())


async def _of_defect(request: Request, error: Any) -> Response:
    facts = facts_of(request.scope)
    log.error("request failed", extra={"method": request.method, **facts}, exc_info=error)
    said = {REQUEST_ID: facts["request_id"]}
    return problem(problems.DEFECT, "a defect of the API, which its log describes", headers=said)
