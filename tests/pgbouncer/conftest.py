"""A PgBouncer in front of the server: all that these tests do goes through it, in transaction mode.

Rule: where the program is not installed the tests are skipped, and say so; it is no part of PostgreSQL.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from progressor.embedded.account import server_account
from tests.acceptance.conftest import MODES, Options, client, engine, serve, side, stack
from tests.clusters import free_port

__all__ = ["client", "engine", "serve", "side", "stack"]  # fixtures

PoolMode = Literal["transaction", "session"]
_DEADLINE = 30.0


class PgBouncer:
    """A pooler on a port of its own, for all databases of one server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def dsn(self, direct: str) -> str:
        """The same database, through the pooler."""
        return make_conninfo(direct, host="127.0.0.1", port=self.port, gssencmode="disable")


@contextmanager
def pgbouncer(server: str, mode: PoolMode, *, size: int = 10) -> Iterator[PgBouncer]:
    """A PgBouncer that lends `size` sessions of each database."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed (apt-get install pgbouncer)")
    with tempfile.TemporaryDirectory(
        prefix="prg-pgbouncer-", dir="/tmp", ignore_cleanup_errors=True
    ) as name:
        home, port = Path(name), free_port()
        account = server_account(home / "none")
        (home / "pgbouncer.ini").write_text(_configuration(server, mode, port, size))
        for path in (home, home / "pgbouncer.ini"):
            shutil.chown(path, account.uid, account.gid)
        with (home / "log").open("w") as log:
            running = subprocess.Popen(
                [program, str(home / "pgbouncer.ini")],
                stdout=log,
                stderr=log,
                user=None if account.is_current else account.uid,
                group=None if account.is_current else account.gid,
                extra_groups=None if account.is_current else [],
            )
        try:
            _wait(running, port, home / "log")
            yield PgBouncer(port)
        finally:
            running.terminate()
            running.wait(_DEADLINE)


def _configuration(server: str, mode: PoolMode, port: int, size: int) -> str:
    parts = conninfo_to_dict(server)
    # It logs in as the user of the tests, whoever asks.
    names = [name for name in ("host", "port", "user", "password") if parts.get(name)]
    target = " ".join(f"{name}={parts[name]}" for name in names)
    return f"""
        [databases]
        * = {target}
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {port}
        unix_socket_dir =
        auth_type = any
        pool_mode = {mode}
        default_pool_size = {size}
        max_client_conn = 500
        ; Each test has a database of its own: what it leaves must not use up the server's connections.
        server_idle_timeout = 3
    """.replace("        ", "")


def _wait(running: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _DEADLINE
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if running.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"pgbouncer does not start: {log.read_text()}")
        time.sleep(0.01)


@pytest.fixture(scope="session")
def pooler(server: str) -> Iterator[PgBouncer]:
    """In transaction mode."""
    with pgbouncer(server, "transaction") as made:
        yield made


@pytest.fixture
def mode() -> Options:
    """What the page on deployment tells people to set."""
    return MODES["scanning"]
