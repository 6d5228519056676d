"""The API as an ASGI application over one client.

Rule: it holds no state of requests: any number of them may stand behind one balancer.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from progressor.client.client import Client
from progressor.errors import NamespaceNotFound, ProcessAlreadyExists, ProgressorError
from progressor.http.server.auth.scopes import Access
from progressor.http.server.correlation import REQUEST_ID, facts_of
from progressor.http.server.health_check import HealthCheck
from progressor.http.server.middleware import access_log
from progressor.http.server.middleware.access_log import AccessLog
from progressor.http.server.middleware.concurrency_limit import ConcurrencyLimit
from progressor.http.server.options import HttpOptions
from progressor.http.server.preconditions import wants_absence
from progressor.http.server.problems import Refusal, problem, problem_of
from progressor.http.server.routers import (
    bulks,
    lifecycle,
    namespaces,
    openapi,
    processes,
    requests,
    timers,
)
from progressor.http.server.routing import RouteContext, reads_failures
from progressor.http.server.schema_cache import NamespaceSchemas
from progressor.http.server.waits import DrainableWaits
from progressor.http.wire import problems
from progressor.loggers import Logger
from progressor.release import VERSION
from progressor.rights import fitting

log = Logger("progressor.http")

# The status that nginx logs for a caller who has left before there was an answer.
_LEFT = 499
# Names that a problem suggests, of the namespaces that may have been meant and that the caller sees.
_MOST_SIMILAR = 3


def make_app(client: Client, *, access: Access, options: HttpOptions | None = None) -> FastAPI:
    """Return the API of the processes that this client reaches; it never closes the client."""
    app = FastAPI(
        title="Progressor",
        version=VERSION,
        # The pages of docs and redoc load scripts from other hosts.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        # FastAPI's telemetry would name paths; access_log.py logs and measures requests by their routes.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.access = access
    waits = DrainableWaits()
    app.state.server = RouteContext(
        client, options or HttpOptions(), NamespaceSchemas(client), waits, HealthCheck(client, waits)
    )
    for room in (requests, lifecycle, timers, processes, namespaces, bulks, openapi, access_log):
        # Flat, so that a loop over the routes of the application meets each one with its scope.
        app.router.routes.extend(room.routes.routes)
    app.add_exception_handler(ProgressorError, _of_error)
    app.add_exception_handler(Refusal, _of_refusal)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(ClientDisconnect, _of_left)
    app.add_exception_handler(Exception, _of_defect)
    bounds = app.state.server.options
    app.add_middleware(ConcurrencyLimit, most=bounds.max_requests, memory=bounds.max_memory_bytes)
    app.add_middleware(AccessLog)
    # The outermost middleware: all others see what it changes.
    app.add_middleware(Plain)
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

        await self._app({**seen, "method": "GET"}, receive, send_head)


async def _of_error(request: Request, error: Any) -> Response:
    if isinstance(error, ProcessAlreadyExists) and wants_absence(request.headers):
        return problem(problems.PRECONDITION_FAILED, str(error), members=problems.members_of(error))
    caller = getattr(request.state, "caller", None)
    if isinstance(error, NamespaceNotFound):
        seen = () if caller is None else fitting(caller.namespaces, error.similar)
        error = NamespaceNotFound(error.namespace, seen[:_MOST_SIMILAR])
    namespace = getattr(error, "namespace", None)
    shows = caller is not None and reads_failures(caller, namespace)
    answer = problem_of(error, shows_failures=shows)
    answer.headers.update(getattr(request.state, "said", {}))
    return answer


async def _of_refusal(_request: Request, refusal: Any) -> Response:
    return problem(refusal.kind, refusal.detail, members=refusal.members, headers=refusal.headers)


async def _of_http(request: Request, error: Any) -> Response:
    if error.status_code != problems.NO_METHOD.status:
        return problem(problems.NO_ROUTE, "there is no such path in this API: see /openapi.json")
    allowed = ", ".join(sorted(_methods_of(request)))
    if request.method == "OPTIONS":
        return Response(status_code=204, headers={"Allow": allowed})
    return problem(
        problems.NO_METHOD,
        f"this path does not know {request.method}, but {allowed}",
        headers={"Allow": allowed},
    )


def _methods_of(request: Request) -> set[str]:
    """Return all methods that the path of this request knows."""
    known = {"OPTIONS"}
    for route in request.app.routes:
        found, _ = route.matches(request.scope)
        if found is not Match.NONE:
            known |= route.methods
    return known | ({"HEAD"} if "GET" in known else set())


async def _of_left(_request: Request, _error: Any) -> Response:
    """Return an answer that nobody receives: its status is counted and logged."""
    return Response(status_code=_LEFT)


async def _of_defect(request: Request, error: Any) -> Response:
    facts = facts_of(request.scope)
    log.error("request failed", extra={"method": request.method, **facts}, exc_info=error)
    said = {REQUEST_ID: facts["request_id"]}
    return problem(problems.DEFECT, "a defect of the API, which its log describes", headers=said)
