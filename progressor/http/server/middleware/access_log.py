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
from progressor.http.server.preconditions import SAFE
from progressor.http.wire.headers import STREAM
from progressor.loggers import Logger
from progressor.supervision import watched

log = Logger("progressor.http")

# Lines per second about answers of 5xx, which other answers never crowd out.
_FAILURES = 50
_FAILED = 500
_REFUSED = 400

_UNKNOWN = "other"
_STREAM = STREAM.encode()
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class AccessLog:
    """Middleware that counts and measures each request, and logs up to `max_lines` of them per second.

    Without `logs_reads` a read that was answered is not logged: pages that refresh would fill the log.
    """

    def __init__(self, app: ASGIApp, max_lines: int, *, logs_reads: bool = True) -> None:
        self._app = app
        self._logs_reads = logs_reads
        self._ordinary, self._failures = LineBudget(max_lines), LineBudget(_FAILURES)
        self._unlogged = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, request_id = time.monotonic(), 500, request_id_of(scope)
        is_stream = False

        async def send_seen(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                # A stream is measured until it begins: how long it lasts is up to its reader.
                is_stream = any(value.startswith(_STREAM) for _, value in message["headers"])
                if is_stream:
                    _measure(scope, status, began)
                message = {**message, "headers": [*message["headers"], (REQUEST_ID.encode(), request_id)]}
            await send(message)

        # Routes add to the facts what they find: the caller, the process, the call, the task.
        facts_of(scope)["request_id"] = request_id.decode()
        try:
            await self._app(scope, receive, send_seen)
        finally:
            if not is_stream:
                _measure(scope, status, began)
            self._say(scope, status, began)

    def _say(self, scope: Scope, status: int, began: float) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        if not self._logs_reads and status < _REFUSED and scope["method"] in SAFE:
            return
        now = time.monotonic()
        budget = self._failures if status >= _FAILED else self._ordinary
        if not budget.take(now):
            self._unlogged += 1
            return
        facts = {
            **_route_of(scope),
            "status": status,
            "took_ms": round((now - began) * 1000, 1),
            "caller": None,
            **facts_of(scope),
        }
        if self._unlogged:
            facts["unlogged"], self._unlogged = self._unlogged, 0
        # uvloop writes an answer to its socket at the end of a turn: the line must not delay that.
        asyncio.get_running_loop().call_soon(_write, facts)


def _measure(scope: Scope, status: int, began: float) -> None:
    metrics.took(metrics.HTTP_REQUEST, began, *_route_of(scope).values(), str(status))


def _route_of(scope: Scope) -> dict[str, str]:
    method = scope["method"] if scope["method"] in _METHODS else _UNKNOWN
    return {"method": method, "route": getattr(scope.get("route"), "path", _UNKNOWN)}


_write = watched("request log", lambda facts: log.info("request answered", extra=facts))
