"""The access log: a measurement for each request, and a line while the lines of this second are few.

Rule: every request is measured, and no load makes more lines than the budgets allow. A request is logged by
its route and by what it is for, never by its path. Nothing of its body or token is logged.
"""

from __future__ import annotations

import asyncio
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from progressor import metrics
from progressor.http.server.api_request import REQUEST_ID, facts_of, request_id_of
from progressor.http.server.middleware.line_budget import LineBudget
from progressor.loggers import Logger
from progressor.supervision import watched

log = Logger("progressor.http")

# Lines per second about answers of 5xx, which other answers never crowd out.
_FAILURES = 50
_FAILED = 500

_UNKNOWN = "other"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class AccessLog:
    """Middleware that counts and measures each request, and logs up to `max_lines` of them per second."""

    def __init__(self, app: ASGIApp, max_lines: int) -> None:
        self._app = app
        self._ordinary, self._failures = LineBudget(max_lines), LineBudget(_FAILURES)
        self._unlogged = 0

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

        # Routes add to the facts what they find: the caller, the process, the call, the task.
        facts_of(scope)["request_id"] = request_id.decode()
        try:
            await self._app(scope, receive, send_seen)
        finally:
            self._say(scope, status, began)

    def _say(self, scope: Scope, status: int, began: float) -> None:
        route = getattr(scope.get("route"), "path", _UNKNOWN)
        method = scope["method"] if scope["method"] in _METHODS else _UNKNOWN
        metrics.took(metrics.HTTP_REQUEST, began, method, route, str(status))
        if not log.isEnabledFor(logging.INFO):
            return
        now = time.monotonic()
        budget = self._failures if status >= _FAILED else self._ordinary
        if not budget.take(now):
            self._unlogged += 1
            return
        facts = {
            "method": method,
            "route": route,
            "status": status,
            "took_ms": round((now - began) * 1000, 1),
            "caller": None,
            **facts_of(scope),
        }
        if self._unlogged:
            facts["unlogged"], self._unlogged = self._unlogged, 0
        # uvloop writes an answer to its socket at the end of a turn: the line must not delay that.
        asyncio.get_running_loop().call_soon(_write, facts)


_write = watched("request log", lambda facts: log.info("request answered", extra=facts))
