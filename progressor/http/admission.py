"""What every request passes before anything is known of it: how many are under way here.

Rule: one too many is told at once to come back, before its body is read or anybody is asked who it is.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from progressor.http.problems import OVERLOADED, RETRY_AFTER_SECONDS, problem
from progressor.http.rates import Standing


class Admission:
    """Middleware: at most so many requests at once; on the way out, how often their callers may ask."""

    def __init__(self, app: ASGIApp, *, most: int) -> None:
        self._app = app
        self._most = most
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Who asks how this server is asks nothing of it, and must not restart it because it is busy.
        if scope["type"] != "http" or scope["path"].startswith("/health"):
            await self._app(scope, receive, send)
            return
        if self._under_way >= self._most:
            answer = problem(
                OVERLOADED,
                f"{self._most:,} requests are under way here, which is as many as it takes",
                headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
            )
            await answer(scope, receive, send)
            return
        # Here, so that what routes write into it is seen on the way out.
        state = scope.setdefault("state", {})

        async def say_rate(message: Message) -> None:
            standing: Standing | None = state.get("rate")
            if message["type"] == "http.response.start" and standing is not None:
                message = {**message, "headers": [*message["headers"], *standing.headers]}
            await send(message)

        self._under_way += 1
        try:
            await self._app(scope, receive, say_rate)
        finally:
            self._under_way -= 1
