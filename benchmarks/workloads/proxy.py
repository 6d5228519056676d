"""A proxy to PostgreSQL that adds a fixed delay each way, and counts round trips.

It runs in an OS process of its own, in threads: an event loop's timers are too coarse for half a
millisecond, and the measured process must not pay for it. Each piece is passed on a fixed time after it
came, however many are on their way.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import statistics
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from progressor.bench.children import BenchChild, child, read_line, write_line
from progressor.storage import migrations, parsed, with_database

_PIECE = 1 << 16
_PINGS = 100


class Line:
    """A DSN through the proxy, and the milliseconds that it really adds to a round trip."""

    def __init__(self, dsn: str, proxy: BenchChild, measured_ms: float) -> None:
        self.dsn = dsn
        self.measured_ms = measured_ms
        self._proxy = proxy

    async def turns(self) -> int:
        """Return the number of round trips so far, on all connections."""
        return int(await self._proxy.ask("turns"))


@asynccontextmanager
async def delayed(dsn: str, seconds_each_way: float) -> AsyncIterator[Line]:
    """Yield a line to the same database with so many seconds more in each direction."""
    parts = parsed(dsn)
    host, port = str(parts.get("host", "localhost")), int(parts.get("port", 5432))
    async with child("benchmarks.workloads.proxy", None) as proxy:
        own_port = await proxy.ask({"host": host, "port": port, "delay": seconds_each_way})
        far = with_database(dsn, str(parts["dbname"]), host="127.0.0.1", port=str(own_port))
        near_ms = await asyncio.to_thread(_ping_ms, dsn)
        far_ms = await asyncio.to_thread(_ping_ms, far)
        yield Line(far, proxy, far_ms - near_ms)


def _ping_ms(dsn: str) -> float:
    """Return the median of a round trip in milliseconds."""
    took = []
    with migrations.connect(dsn) as connection:
        connection.exec_driver_sql("SELECT 1")
        for _ in range(_PINGS):
            began = time.perf_counter()
            connection.exec_driver_sql("SELECT 1")
            took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


class _Proxy:
    def __init__(self, host: str, port: int, delay: float) -> None:
        self._host, self._port, self._delay = host, port, delay
        self._talks: list[_Talk] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def turns(self) -> int:
        return sum(talk.turns for talk in self._talks)

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            self._talks.append(_Talk(near, self._connect(), self._delay))

    def _connect(self) -> socket.socket:
        if self._host.startswith("/"):
            far = socket.socket(socket.AF_UNIX)
            far.connect(f"{self._host}/.s.PGSQL.{self._port}")
            return far
        return socket.create_connection((self._host, self._port))


class _Talk:
    """One connection: two directions, each with a thread that reads and one that passes on."""

    def __init__(self, near: socket.socket, far: socket.socket, delay: float) -> None:
        self.turns = 0
        self._delay = delay
        self._client_spoke_last = False
        for sock in (near, far):
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((near, far), (far, near)):
            pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            threading.Thread(target=self._read, args=(source, pieces, source is near), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(target, pieces), daemon=True).start()

    def _read(
        self, source: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]], from_client: bool
    ) -> None:
        piece = b"?"
        while piece:
            try:
                piece = source.recv(_PIECE)
            except OSError:
                piece = b""
            if piece and from_client != self._client_spoke_last:
                self._client_spoke_last = from_client
                self.turns += from_client
            pieces.put((time.monotonic() + self._delay, piece))

    def _pass_on(self, target: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        with contextlib.suppress(OSError):
            while True:
                at, piece = pieces.get()
                time.sleep(max(0.0, at - time.monotonic()))
                if not piece:
                    break
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _main() -> None:
    proxy: _Proxy | None = None
    read_line()
    write_line("ready")
    while (question := read_line()) is not None:
        match question:
            case {"host": host, "port": port, "delay": delay}:
                proxy = _Proxy(host, port, delay)
                write_line(proxy.port)
            case _:
                write_line(proxy.turns if proxy is not None else 0)


if __name__ == "__main__":
    _main()
