"""The access log, a line and a measurement for each request, and the routes of health and metrics.

Rule: a request is logged by its route and by what it is for, never by its path. Nothing of its body or
token is logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict
from typing import Annotated

from fastapi import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from progressor import metrics
from progressor.http.server import bodies
from progressor.http.server.auth.scopes import Caller, public, require_scope
from progressor.http.server.correlation import REQUEST_ID, facts_of, request_id_of
from progressor.http.server.openapi.operations import ANY_TIME, OBJECT, answers
from progressor.http.server.routing import TheServer, router
from progressor.loggers import Logger
from progressor.supervision import watched

log = Logger("progressor.http")

routes = router()

_UNKNOWN = "other"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class AccessLog:
    """Middleware that counts, measures and logs each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, request_id = time.monotonic(), 500, request_id_of(scope)

        async def send_seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (REQUEST_ID.encode(), request_id)]}
            await send(message)

        # Routes add to the facts what they find: the process, the call, the task.
        facts_of(scope)["request_id"] = request_id.decode()
        try:
            await self._app(scope, receive, send_seen)
        finally:
            _say(scope, status, began)


def _say(scope: Scope, status: int, began: float) -> None:
    route = getattr(scope.get("route"), "path", _UNKNOWN)
    method = scope["method"] if scope["method"] in _METHODS else _UNKNOWN
    metrics.took(metrics.HTTP_REQUEST, began, method, route, str(status))
    if log.isEnabledFor(logging.INFO):
        caller = scope["state"].get("caller")
        facts = {
            "method": method,
            "route": route,
            "status": status,
            "took_ms": round((time.monotonic() - began) * 1000, 1),
            "caller": None if caller is None else caller.name,
            **facts_of(scope),
        }
        # uvloop writes an answer to its socket at the end of a turn: the line must not delay that.
        asyncio.get_running_loop().call_soon(_write, facts)


_write = watched("request log", lambda facts: log.info("request answered", extra=facts))


@routes.get("/health/live", include_in_schema=False, dependencies=[public])
async def live() -> Response:
    """Answer while the event loop runs: a restart could mend nothing else."""
    return bodies.shown({"ok": True})


@routes.get("/health/ready", include_in_schema=False, dependencies=[public])
async def ready(server: TheServer) -> Response:
    """Answer 503 while the server stops. Without the database it is ready: requests wait for that."""
    ok = not server.waits.is_draining
    return bodies.shown({"ok": ok}, 200 if ok else 503)


@routes.get(
    "/health",
    operation_id="health",
    summary="The health of the API and of its database",
    response_model=None,
    responses=answers(
        {200: ("It can work.", OBJECT), 503: ("It cannot.", OBJECT)}, (400, 401, 403, 412, 429, 500)
    ),
)
async def health(
    server: TheServer,
    caller: Annotated[Caller, require_scope("admin")],
) -> Response:
    """Return whether the database answers, with the right schema, and who serves what."""
    found = await server.health.now()
    seen = {
        field: [each for each in getattr(found, field) if caller.may("admin", each)]
        for field in ("namespaces", "paused")
    }
    return bodies.shown({**asdict(found), **seen}, 200 if found.ok else 503)


@routes.get(
    "/metrics",
    operation_id="metrics",
    summary="Metrics of this OS process, for Prometheus",
    response_model=None,
    responses=answers({200: ("As text.", {"text/plain": {"schema": {"type": "string"}}})}, ANY_TIME),
)
async def all_metrics(
    request: Request,
    caller: Annotated[Caller, require_scope("admin")],
) -> Response:
    """Return metrics in the format that the Accept header names, of the namespaces that the caller sees."""
    shown = metrics.families_of(lambda namespace: caller.may("admin", namespace))
    text, content_type = metrics.exposition(request.headers.get("Accept", ""), shown)
    return Response(text, media_type=content_type)
