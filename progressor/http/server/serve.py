"""The API on a socket, from when it is entered until it is left.

Rule: a stop answers what is under way. Who waits gets the answer or, after a moment, where to ask for it.
Until then it is asked as before, and says that it is not ready; then connections are closed, and last the
client.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import uvicorn
from fastapi import FastAPI

from progressor import descriptors
from progressor.client.client import Client
from progressor.errors import InvalidRequest
from progressor.http.server.auth.scopes import Access
from progressor.http.server.connections import HttpConnections
from progressor.http.server.routing import RouteContext
from progressor.loggers import Logger
from progressor.supervision import Background

log = Logger("progressor.http")

_BACKLOG = 2048
# Longer than balancers keep a connection that is idle: else one closes under a request of theirs.
_KEEP_ALIVE = 75
# A peer that vanished without a word is found out in two minutes: uvicorn waits for the first request of a
# connection as long as that is open.
_OF_TCP = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}
# Descriptors that are left for the database, the log, the loop and whatever else is no peer's.
_OTHER_DESCRIPTORS = 128
# What the connections may take to close beyond the waits.
_BEYOND_DRAIN = 5.0


class ApiServer:
    """Serves an application of `make_app` over its client from `async with` on.

    `listener` is a `bound` socket, if it is shared with other OS processes.
    """

    def __init__(
        self, client: Client, app: FastAPI, *, host: str, port: int, listener: socket.socket | None = None
    ) -> None:
        self.client = client
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
    def _access(self) -> Access:
        access: Access = self._app.state.access
        return access

    @property
    def busy(self) -> int:
        """How many requests wait for an answer."""
        return self._shared.waits.count

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop: it is not ready for more."""
        return self._shared.waits.is_draining

    async def __aenter__(self) -> Self:
        options = self._shared.options
        self.connections = HttpConnections(_most_connections(options.max_connections))
        config = uvicorn.Config(
            self._app,
            log_config=None,
            # What it says of itself is said here; what goes wrong in it is not.
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            # Whose certificate counts depends on who asks, and a header could say that it is another one.
            proxy_headers=False,
            ws="none",
            # A factory stands where uvicorn has a class.
            http=self.connections.make,  # type: ignore[arg-type]
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=int(options.drain + _BEYOND_DRAIN),
        )
        self._server = _Uvicorn(config)
        try:
            await self.client.__aenter__()
            await self._access.begin(self._host)
        except BaseException:
            self._socket.close()
            await self.client.close()
            raise
        self._background.begin("http server", self._server.serve([self._socket]))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shared = self._shared
        await shared.waits.drain(shared.options.drain)
        self._server.should_exit = True
        await self._background.ended()
        await self._access.close()
        await self.client.close()
        log.info("api stopped")


def _most_connections(wanted: int) -> int:
    """As many connections as are wanted, if descriptors are left for them; a log line if not."""
    left = max(1, descriptors.most() - _OTHER_DESCRIPTORS)
    if left < wanted:
        log.warning(
            "fewer connections than are wanted, for the limit of file descriptors is low",
            extra={"connections": left, "wanted": wanted, "descriptors": descriptors.most()},
        )
    return min(left, wanted)


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to whoever runs this."""
        yield


def url_of(host: str, listener: socket.socket) -> str:
    """The address of an API, the port as it was given by the system."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens already: who connects before the server has begun waits for it."""
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
    """What is accepted inherits it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OF_TCP.items():
        # Not every platform has each.
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _refused(host: str, port: int, error: OSError) -> InvalidRequest:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        field, remedy = "host", "give an address of this machine with --host (0.0.0.0: all)"
    else:
        field, remedy = "port", "choose another port with --port (0: any free one)"
    return InvalidRequest(
        f"the API cannot be served on {host}:{port} ({error.strerror or error}): {remedy}", field=field
    )
