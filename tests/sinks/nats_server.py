"""A nats-server of a test's own, with JetStream in a folder that outlives its kills."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clusters import free_port

_DEADLINE = 30.0


class NatsServer:
    """One server on a port of 127.0.0.1."""

    def __init__(self, program: str, home: Path, settings: str) -> None:
        self._program, self._home = program, home
        self.port = free_port()
        self._running: subprocess.Popen[bytes] | None = None
        (home / "nats.conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{home}/streams" }}\n{settings}'
        )

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it takes connections and has read its streams."""
        with (self._home / "log").open("ab") as log:
            self._running = subprocess.Popen(
                [self._program, "-c", str(self._home / "nats.conf")], stdout=log, stderr=log
            )
        deadline = time.monotonic() + _DEADLINE
        while time.monotonic() < deadline and self._running.poll() is None:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        pytest.fail(f"nats-server does not start: {(self._home / 'log').read_text()}")

    def kill(self) -> None:
        """End it as `kill -9` does."""
        if self._running is not None:
            self._running.kill()
            self._running.wait(_DEADLINE)
            self._running = None


@contextmanager
def nats_server(settings: str = "") -> Iterator[NatsServer]:
    """A server that is started; `settings` are more lines of its configuration."""
    program = shutil.which("nats-server", path="/usr/local/bin:/usr/bin:/usr/sbin:/opt/homebrew/bin")
    program = shutil.which("nats-server") or program
    if program is None:
        pytest.skip("nats-server is not installed (apt-get install nats-server)")
    with tempfile.TemporaryDirectory(prefix="prg-nats-", ignore_cleanup_errors=True) as home:
        server = NatsServer(program, Path(home), settings)
        server.start()
        try:
            yield server
        finally:
            server.kill()
