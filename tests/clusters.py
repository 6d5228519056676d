"""Servers of a test's own, to be stopped, replicated and promoted; and an address that leads to one.

Rule: the programs are those of `tests/postgres.py`. Nothing of a cluster outlives its `with`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from progressor.embedded.account import server_account
from tests import postgres

_PROGRAMS = ("initdb", "pg_basebackup", "pg_ctl")
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # Servers that nobody trusts with anything: a test does not wait for a disk.
    "fsync": "off",
    "wal_keep_size": "64MB",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "hot_standby": "on",
}


class Cluster:
    """One server on a TCP port of 127.0.0.1, made by `clusters()`."""

    def __init__(self, home: Path) -> None:
        self._account = server_account(home)
        self._installation = postgres.installation().usable_by(self._account, folder=home)
        missing = [name for name in _PROGRAMS if not self._installation.program(name).exists()]
        if missing:
            pytest.skip(f"the PostgreSQL under test has no {', '.join(missing)}")
        self._home = home
        self._data = home / "data"
        self.port = free_port()

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def initialise(self) -> None:
        """Make an empty cluster."""
        names = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", f"--pgdata={self._data}", *names)

    def copy(self, primary: Cluster) -> None:
        """Make a standby of another server, which streams from it."""
        source = f"host=127.0.0.1 port={primary.port} user=postgres"
        self._run(
            "pg_basebackup",
            f"--pgdata={self._data}",
            f"--dbname={source}",
            "--checkpoint=fast",
            "--no-sync",
        )
        # Not by --write-recovery-conf: that writes options which the server's own libpq may not know.
        with (self._data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{source}'\n")
        (self._data / "standby.signal").touch()

    @property
    def programs(self) -> Path:
        """The folder of its programs."""
        return self._installation.bin_dir

    def start(self, **more: str) -> None:
        """Start it, with more settings, and wait until it answers."""
        settings = {**_SETTINGS, **more, "port": str(self.port), "unix_socket_directories": ""}
        options = " ".join(f"-c {name}={value or repr('')}" for name, value in settings.items())
        log = self._home / "log"
        self._run("pg_ctl", "start", "-w", "-s", "-D", str(self._data), "-l", str(log), "-o", options)

    def stop(self, how: Literal["fast", "immediate"] = "fast") -> None:
        """End it: its sessions are told (fast), or it ends as in a crash (immediate)."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-w", "-s", "-D", str(self._data), "-m", how)

    def promote(self) -> None:
        """Make a standby a primary; return when it takes writes."""
        self._run("pg_ctl", "promote", "-w", "-s", "-D", str(self._data))

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Rows of one statement on a connection of its own."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    async def follow(self, primary: Cluster) -> None:
        """Return when this standby has all that the primary has committed until now."""
        ((wanted,),) = await asyncio.to_thread(primary.execute, "SELECT pg_current_wal_lsn()")
        behind = f"SELECT pg_last_wal_replay_lsn() >= '{wanted}'::pg_lsn"
        async with asyncio.timeout(30):
            while await asyncio.to_thread(self.execute, behind) != [(True,)]:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

    async def fall_behind(self) -> None:
        """Have this standby receive nothing more: what its primary commits from now on it never has."""
        await asyncio.to_thread(self.execute, "ALTER SYSTEM SET primary_conninfo = ''")
        await asyncio.to_thread(self.execute, "SELECT pg_reload_conf()")
        async with asyncio.timeout(30):
            while await asyncio.to_thread(self.execute, "SELECT pid FROM pg_stat_wal_receiver"):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

    def _run(self, program: str, *arguments: str) -> None:
        done = self._account.run([self._installation.program(program), *arguments])
        if done.returncode != 0:
            log = self._home / "log"
            raise RuntimeError(f"{program}: {done.stdout}{log.read_text() if log.exists() else ''}")


@contextmanager
def clusters(count: int) -> Iterator[list[Cluster]]:
    """So many servers that are not yet made, ended and removed afterwards."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            home = Path(tempfile.mkdtemp(prefix="prg-cluster-", dir=postgres.PLACE))
            stack.callback(shutil.rmtree, home, ignore_errors=True)
            account = server_account(home / "none")
            shutil.chown(home, account.uid, account.gid)
            cluster = Cluster(home)
            stack.callback(cluster.stop, "immediate")
            made.append(cluster)
        yield made


@contextmanager
def primary_and_standby() -> Iterator[tuple[Cluster, Cluster]]:
    """A server, and a standby that streams from it."""
    with clusters(2) as (primary, standby):
        primary.initialise()
        primary.start()
        standby.copy(primary)
        standby.start()
        yield primary, standby


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Address:
    """A port that leads to another one; who is connected stays where it is when that changes."""

    def __init__(self, leads_to: int) -> None:
        self.leads_to = leads_to
        self._lines: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Address:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.create_task(_join(reader, writer, self.leads_to))
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    with contextlib.closing(writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        with contextlib.closing(far_writer):
            # The first side that ends, ends both.
            ways = [
                asyncio.create_task(_pour(reader, far_writer)),
                asyncio.create_task(_pour(far_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
