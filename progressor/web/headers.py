"""The headers of every answer of the console: what a browser may do with its pages.

Rule: no page runs a script or a style that stands in it, or loads anything from another origin. None is
shown in a frame or kept by a cache.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
_OF_ALL = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def guard(headers: MutableHeaders) -> None:
    """Give an answer these headers; what says nothing of caches is kept by none."""
    headers.update(_OF_ALL)
    headers.setdefault("Cache-Control", "no-store")


class Guarded:
    """Middleware that gives each answer these headers, but for defects, which are answered around it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                guard(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_guarded)
