"""`/metrics` and `/health` over HTTP, for Prometheus and service managers.

`/health/live` is for restarts (does the event loop answer?), `/health/ready` for load balancers (has it
started, and does it not stop?), `/health` shows people everything. Rule: a thread of its own serves them,
so a handler that blocks the event loop hides no metric, and shows up in health.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Self

from progressor import metrics
from progressor.client.results import Health
from progressor.deployment.health import ServiceHealth
from progressor.errors import InvalidRequest
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines, cause_of
from progressor.supervision import keep_thread, log_failed

log = Logger("progressor.monitor")

# Seconds; less than callers of /health wait.
_HEALTH_SECONDS = 2.0
_CONNECTION_SECONDS = 10.0
# Seconds between two looks of the server whether it must stop.
_LOOKS_UP_SECONDS = 0.1
_LINES = OutageLines("service not healthy", "service still not healthy", "service healthy again")
_PAGES = b"there are /metrics, /health, /health/live and /health/ready\n"

# The metrics as text and its content type, for an Accept header; called in a thread.
Expose = Callable[[str], tuple[bytes, str]]


class Monitor(ServiceHealth):
    """The HTTP server of metrics and health, from `with` on; InvalidRequest if it cannot listen.

    `expose` returns the content of `/metrics`, by default the metrics of this OS process.
    """

    def __init__(self, host: str, port: int, expose: Expose = metrics.exposition) -> None:
        super().__init__(_HEALTH_SECONDS)
        self.expose = expose
        self._left = threading.Event()
        self._illness = Outage(log, _LINES)
        try:
            self._server = _Server(host, port, self)
        except OSError as error:
            raise _refused(host, port, error) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        keep_thread("monitor", self._serve, until=self._left)
        return self

    def health(self) -> Health:
        """Return the present health, and log what does not answer; call it in a thread."""
        health = super().health()
        if health.ok:
            self._illness.worked()
        elif health.fault is not None:
            facts = {"fault": health.fault, "fault_seconds": health.fault_seconds}
            self._illness.failed(health.detail or "", **facts)
        return health

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=_LOOKS_UP_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._server.shutdown()
        self._server.server_close()


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
                # The caller has gone.
                log.debug("request not answered", extra={"cause": cause_of(error)})
            case BaseException() as error:
                log_failed("monitor", error)


class _Page(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CONNECTION_SECONDS

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                body, content_type = self.server.monitor.expose(self.headers.get("Accept", ""))
                self._send(HTTPStatus.OK, content_type, body)
            case "/health":
                health = self.server.monitor.health()
                self._send_health(health.ok, asdict(health))
            case "/health/ready":
                ready = self.server.monitor.readiness()
                self._send_health(ready.ok, ready._asdict())
            case "/health/live":
                life = self.server.monitor.life()
                self._send_health(life.ok, life._asdict())
            case _:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", _PAGES)

    def _send_health(self, ok: bool, body: Mapping[str, object]) -> None:
        status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
        self._send(status, "application/json", json.dumps(body).encode())

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
