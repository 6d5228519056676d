"""Copies of the server: a standby that follows it and takes its place, and a backup that replaces it.

Rule: a copy comes up on a socket of its own, where no client finds it, and is read there before it takes
the server's place. The data that it replaces are kept until they have been read, too.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.chaos.server import Row, Server
from progressor.deployment.settings import Settings
from progressor.embedded.account import server_account
from progressor.embedded.binaries import find_installation

_BOUND_SECONDS = 60.0
_PAUSE = 0.02
_NAME = "copy"


class Copy:
    """The data of a server at one moment, in a folder beside it. Blocking; call it in a thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._account = server_account(server.data)
        folder = server.data.parent
        self._programs = find_installation(Settings().postgres_bin_dir).usable_by(
            self._account, folder=folder
        )
        self._home = Path(tempfile.mkdtemp(prefix="copy-", dir=folder.parent))
        shutil.chown(self._home, self._account.uid, self._account.gid)
        self._data = self._home / "data"
        self._source = psycopg.conninfo.conninfo_to_dict(server.dsn)
        self._dsn = psycopg.conninfo.make_conninfo(server.dsn, host=str(self._home))
        self._run(
            "pg_basebackup", f"--pgdata={self._data}", f"--dbname={self._upstream}", "--checkpoint=fast"
        )

    @property
    def _upstream(self) -> str:
        names = {name: self._source[name] for name in ("host", "port", "user")}
        return psycopg.conninfo.make_conninfo("", **names, application_name=_NAME)

    def follow(self, *, synchronously: bool = False) -> None:
        """Stream from the server; return when it has all that is committed there."""
        (self._data / "standby.signal").touch()
        shutil.chown(self._data / "standby.signal", self._account.uid, self._account.gid)
        self._start(primary_conninfo=self._upstream)
        if synchronously:
            self._server.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{_NAME}'")
            self._server.execute("SELECT pg_reload_conf()")
            self._until("SELECT sync_state = 'sync' FROM pg_stat_replication", self._server.dsn)
        ((wanted,),) = self._server.query("SELECT pg_current_wal_lsn()")
        self._until(f"SELECT pg_last_wal_replay_lsn() >= '{wanted}'::pg_lsn", self._dsn)

    def fall_behind(self) -> None:
        """Follow no longer: what the server commits from here on, this copy never has."""
        self._stop("fast")

    def take_over(self, facts: str) -> tuple[list[Row], list[Row]]:
        """End the server as a crash would, and take its place; the rows of both, its own first.

        A standby is promoted, and begins a new timeline; a backup goes on where it was taken.
        """
        self._server.end(signal.SIGQUIT)
        if not (self._data / "postmaster.pid").exists():
            self._start(primary_conninfo="")
        if (self._data / "standby.signal").exists():
            self._run("pg_ctl", "promote", "-w", "-s", "-D", str(self._data))
        has = self._query(facts)
        self._stop("fast")
        replaced = self._home / "replaced"
        self._server.data.rename(replaced)
        self._data.rename(self._server.data)
        self._server.begin()
        self._data = replaced
        self._start(primary_conninfo="")
        had = self._query(facts)
        return has, had

    def remove(self) -> None:
        """End what runs on it, and delete it."""
        if (self._data / "postmaster.pid").exists():
            self._stop("immediate")
        shutil.rmtree(self._home)

    def _query(self, sql: str) -> list[Row]:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    def _until(self, sql: str, dsn: str) -> None:
        end = time.monotonic() + _BOUND_SECONDS
        with psycopg.connect(dsn, autocommit=True) as connection:
            while connection.execute(sql.encode()).fetchall() != [(True,)]:
                if time.monotonic() > end:
                    raise RuntimeError(f"not within {_BOUND_SECONDS:g} s: {sql}")
                time.sleep(_PAUSE)

    def _start(self, **settings: Any) -> None:
        stated = {
            "listen_addresses": "",
            "port": self._source["port"],
            "unix_socket_directories": str(self._home),
            "max_connections": "200",
            # Nobody crashes the machine; the server whose place it takes waits for the disk again.
            "fsync": "off",
            "synchronous_standby_names": "",
            **settings,
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in stated.items())
        log = str(self._home / "log")
        self._run("pg_ctl", "start", "-w", "-s", "-D", str(self._data), "-l", log, "-o", options)

    def _stop(self, how: str) -> None:
        self._run("pg_ctl", "stop", "-w", "-s", "-D", str(self._data), "-m", how)

    def _run(self, program: str, *arguments: str) -> None:
        done = self._account.run([self._programs.program(program), *arguments])
        if done.returncode != 0:
            log = self._home / "log"
            raise RuntimeError(f"{program}: {done.stdout}{log.read_text() if log.exists() else ''}")
