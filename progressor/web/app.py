"""The console as an ASGI application over one client.

Rule: no state but in PostgreSQL and in the browser's cookies: any number of them may stand behind one
balancer, under any prefix.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route

from progressor.client.client import Client
from progressor.http.server.api_request import RouteContext
from progressor.http.server.app import Plain
from progressor.http.server.auth.principals import Principal, unknown
from progressor.http.server.auth.scopes import Access, Admission
from progressor.http.server.middleware.access_log import AccessLog
from progressor.http.server.options import HttpOptions
from progressor.web.headers import Guarded
from progressor.web.page import ConsolePage, of_defect, of_http
from progressor.web.pages import (
    audit,
    broken,
    bulks,
    changes,
    feed,
    hints,
    overview,
    process,
    processes,
    schedule,
    schedules,
    sessions,
    start,
    system,
    workers,
)
from progressor.web.pages.namespaces import load, namespace, retention
from progressor.web.static import static_file

Authorize = Callable[[Request], Awaitable[Principal | None] | Principal | None]
"""A function that says who sends a request, and with which rights; None: nobody who is known."""


_ROOMS = (
    *(overview, processes, process, start, changes, broken, namespace, load, retention, workers),
    *(schedules, schedule, feed, bulks, audit, system, sessions),
)


def console(client: Client, *, authorize: Authorize, read_only: bool = False) -> Starlette:
    """Return the console as an application to mount: `app.mount("/progressor", console(client, …))`.

    `authorize` is asked at each request, and whom it does not know is refused: nobody signs in here. With
    `read_only` there is no form that changes a process. The client stays the caller's: it is neither
    entered nor closed here.
    """
    return make_console(client, access=_Authorized(authorize), read_only=read_only, is_mounted=True)


def make_console(
    client: Client,
    *,
    access: Access,
    options: HttpOptions | None = None,
    read_only: bool = False,
    is_mounted: bool = False,
) -> Starlette:
    """Return the console of the processes that this client reaches, for callers whom `access` admits.

    With `is_mounted` it is a part of another application: that signs people in, and does not wait at its
    end for streams of hints.
    """
    server = RouteContext.of(client, access, options)
    app = Starlette(
        routes=[*_pages(read_only, is_mounted), Route("/static/{name}", static_file)],
        middleware=[
            Middleware(Guarded),
            Middleware(Plain),
            Middleware(AccessLog, max_lines=server.options.max_log_lines, logs_reads=False),
        ],
        exception_handlers={HTTPException: of_http, Exception: of_defect},
    )
    app.router.redirect_slashes = False
    app.state.read_only, app.state.is_mounted = read_only, is_mounted
    app.state.server = server
    return app


def _pages(read_only: bool, is_mounted: bool) -> list[ConsolePage]:
    """Return the pages and forms that a console has."""
    return [
        page
        for room in (*_ROOMS, *(() if is_mounted else (hints,)))
        for page in room.pages
        if not (read_only and page.changes_processes) and not (is_mounted and page.is_public)
    ]


class _Authorized:
    """The access of a host application, which knows its users."""

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    async def begin(self, host: str) -> None:
        """Refuse no address: the host application is served on its own."""

    async def close(self) -> None:
        """Close nothing: nothing was opened."""

    async def admit(self, request: Request) -> Admission:
        found = self._authorize(request)
        caller = await found if isawaitable(found) else found
        if caller is None:
            raise unknown("the application that serves the console does not know you", shown=False)
        return Admission(caller)
