"""The API on a socket, from when it is entered until it is left.

Rule: a stop answers the requests that are under way. A caller who waits gets the answer or, after `drain`
seconds, the address to ask for it. Until then the server takes requests, and its probe says that it is not
ready; then it closes its connections, and last the client.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import uvicorn
from starlette.applications import Starlette

from progressor import outages
from progressor.client.client import Client
from progressor.errors import InvalidRequest
from progressor.http.server.api_request import RouteContext
from progressor.http.server.connections import HttpConnection, HttpConnections
from progressor.loggers import Logger
from progressor.supervision import Background

log = Logger("progressor.http")

_BACKLOG = 2048
# Seconds; longer than balancers keep an idle connection: else one closes just as they send a request.
_KEEP_ALIVE = 75
# A connection whose peer has vanished is closed after two minutes, for uvicorn waits for the first request
# of a connection without end.
_OF_TCP = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}
# File descriptors that are kept for the database, the log, the loop and all else that is no peer's.
_OTHER_DESCRIPTORS = 128
# Seconds that connections may take to close, beyond the waits.
_BEYOND_DRAIN = 5.0
# Seconds for the first request of a connection that was taken as the server stopped; and between looks.
_MOMENT, _LOOKS = 0.5, 0.02


class ApiServer:
    """A server of an application over a client: `async with` serves it, and closes the client at the end.

    The application has its RouteContext in `state.server`. `listener` is a `bound` socket, if it is shared
    with other OS processes. InvalidRequest is raised if the
    address cannot be served, or would be open to callers without a token.
    """

    def __init__(
        self,
        client: Client,
        app: Starlette,
        *,
        host: str,
        port: int,
        listener: socket.socket | None = None,
        what: str = "api",
    ) -> None:
        self.client = client
        self._what = what
        self._socket = bound(host, port) if listener is None else listener
        self._app = app
        self._host = host
        self._background = Background()
        self.url = url_of(host, self._socket)

    @property
    def _shared(self) -> RouteContext:
        server: RouteContext = self._app.state.server
        return server

    @property
    def busy(self) -> int:
        """Return how many requests wait for an answer."""
        return self._shared.waits.count

    @property
    def is_stopping(self) -> bool:
        """Return whether the server was told to stop, and is not ready for more."""
        return self._shared.waits.is_draining

    async def __aenter__(self) -> Self:
        options = self._shared.options
        self.connections = HttpConnections(_most_connections(options.max_connections))
        config = uvicorn.Config(
            self._app,
            log_config=None,
            # uvicorn logs its warnings; starts and stops are logged by us.
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            # The peer's address decides whether a certificate counts: a header must not replace it.
            proxy_headers=False,
            ws="none",
            # A factory in place of the class that uvicorn expects: it is called in the same way.
            http=self.connections.make,  # type: ignore[arg-type]
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=int(options.drain + _BEYOND_DRAIN),
        )
        self._server = _Uvicorn(config)
        try:
            await self.client.__aenter__()
            await self._shared.access.begin(self._host)
        except BaseException:
            self._socket.close()
            await self.client.close()
            raise
        self._background.begin("http server", self._server.serve([self._socket]))
        return self

    async def __aexit__(self, *_: object) -> None:
        shared = self._shared
        await shared.waits.drain(shared.options.drain)
        self._server.should_exit = True
        await self._background.ended()
        await shared.access.close()
        await self.client.close()
        log.info("%s stopped", self._what)


def _most_connections(wanted: int) -> int:
    """Return how many connections may be open: `wanted`, or what the descriptors allow, which is logged."""
    left = max(1, outages.most_descriptors() - _OTHER_DESCRIPTORS)
    if left < wanted:
        log.warning(
            "fewer connections than are wanted, for the limit of file descriptors is low",
            extra={"connections": left, "wanted": wanted, "descriptors": outages.most_descriptors()},
        )
    return min(left, wanted)


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the program that runs this server."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and leave those that were taken just now a moment to ask."""
        for server in self.servers:
            server.close()
        until = time.monotonic() + _MOMENT
        while self._has_silent and time.monotonic() < until:  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(_LOOKS)
        await super().shutdown(sockets)

    @property
    def _has_silent(self) -> bool:
        """Return whether a connection is open on which nothing was ever asked."""
        connections = self.server_state.connections
        return any(isinstance(each, HttpConnection) and each.cycle is None for each in connections)


def url_of(host: str, listener: socket.socket) -> str:
    """Return the URL of an API, with the port that the system has given it."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens already: peers that connect before the server begins wait for it.

    Raise InvalidRequest if the address cannot be served.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _ask_whether_peers_live(listener)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _refused(host, port, error) from None
    return listener


def _ask_whether_peers_live(listener: socket.socket) -> None:
    """Have TCP check that peers are alive; the connections of the listener inherit the options."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OF_TCP.items():
        # Not every platform has every option.
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _refused(host: str, port: int, error: OSError) -> InvalidRequest:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        field, remedy = "host", "give an address of this machine with --host (0.0.0.0: all)"
    else:
        field, remedy = "port", "choose another port with --port (0: any free one)"
    return InvalidRequest(
        f"HTTP cannot be served on {host}:{port} ({error.strerror or error}): {remedy}", field=field
    )
