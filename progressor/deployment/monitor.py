"""`/metrics` and `/health` over HTTP, for Prometheus and for whoever restarts what is ill.

Rule: served by a thread of its own. A handler that blocks the event loop hides no metric, and is seen:
`/health` asks through the loop, and a loop that does not answer in time is not healthy.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Self

from progressor import metrics
from progressor.client.results import Health
from progressor.errors import InvalidRequest
from progressor.outages import cause_of
from progressor.supervision import keep_thread, say_failed

log = logging.getLogger("progressor.monitor")

# Less than the patience of those who ask.
_HEALTH_SECONDS = 2.0
_CONNECTION_SECONDS = 10.0
# How often the server looks whether it is to stop.
_LOOKS_UP_SECONDS = 0.1

Ask = Callable[[], Awaitable[Health]]


class Monitor:
    """Serves from `with` on. Not healthy until `watch` says whom to ask, nor after `leave`."""

    def __init__(self, host: str, port: int) -> None:
        self._says: str = "starting"
        self._left = threading.Event()
        self._ask: tuple[asyncio.AbstractEventLoop, Ask] | None = None
        try:
            self._server = _Server(host, port, self)
        except OSError as error:
            raise _refused(host, port, error) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        keep_thread("monitor", self._serve, until=self._left)
        return self

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=_LOOKS_UP_SECONDS)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        self._server.shutdown()
        self._server.server_close()

    def watch(self, ask: Ask) -> None:
        """Ask this, on the running event loop, how things are."""
        self._ask = asyncio.get_running_loop(), ask

    def leave(self) -> None:
        """Say from now on that the service stops, so that nobody counts on it any more."""
        self._says, self._ask = "stopping", None

    def health(self) -> Health:
        """Ask how things are now; called in a thread."""
        asked = self._ask
        if asked is None:
            return Health(False, self._says, 0, ())
        loop, ask = asked
        question = _awaited(ask)
        try:
            future = asyncio.run_coroutine_threadsafe(question, loop)
        except RuntimeError:
            question.close()
            return Health(False, "stopping", 0, ())
        try:
            return future.result(_HEALTH_SECONDS)
        except NoAnswer:
            future.cancel()
            says = f"no answer within {_HEALTH_SECONDS:g} s from the event loop or the database"
            return Health(False, says, 0, ())


def _refused(host: str, port: int, error: OSError) -> InvalidRequest:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        field, remedy = "metrics_host", "give an address of this machine with --metrics-host (0.0.0.0: all)"
    else:
        field, remedy = "metrics_port", "choose another port with --metrics-port (0: any free one)"
    return InvalidRequest(
        f"metrics cannot be served on {host}:{port} ({error.strerror or error}): {remedy} "
        f"or PROGRESSOR_{field.upper()}",
        field=field,
    )


async def _awaited(ask: Ask) -> Health:
    return await ask()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, monitor: Monitor) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.monitor = monitor
        super().__init__((host, port), _Page)

    def server_bind(self) -> None:
        # Without the parent's look-up of the host's name, which may take long and is not needed.
        TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base class calls it so
        match sys.exception():
            case ConnectionError() | TimeoutError() as error:
                # Whoever asked has gone.
                log.debug("request not answered", extra={"cause": cause_of(error)})
            case BaseException() as error:
                say_failed("monitor", error)


class _Page(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CONNECTION_SECONDS

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                body, content_type = metrics.exposition(self.headers.get("Accept", ""))
                self._send(HTTPStatus.OK, content_type, body)
            case "/health":
                health = self.server.monitor.health()
                status = HTTPStatus.OK if health.ok else HTTPStatus.SERVICE_UNAVAILABLE
                self._send(status, "application/json", json.dumps(asdict(health)).encode())
            case _:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there are /metrics and /health\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        log.debug("request served", extra={"request": format % args})
