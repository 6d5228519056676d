"""The embedded server as one OS process uses it: start it or attach to it, and leave it.

Rule: a process decides to start the server while it holds start.lock and users.lock shared, and to end it
while it holds users.lock exclusively; the package's docstring has the reasons.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

import psycopg
from psycopg import sql

from progressor.embedded import lifetime
from progressor.embedded.account import Account, server_account
from progressor.embedded.binaries import Installation, find_installation
from progressor.embedded.folder import (
    SOCKET_PORT,
    default_data_dir,
    log_tail,
    major_of,
    prepare_folder,
    socket_dir,
)
from progressor.embedded.launch import SUPERUSER, launch
from progressor.errors import StorageUnavailable
from progressor.loggers import Logger

logger = Logger("progressor.embedded")

DATABASE = "progressor"

_LOCK_SECONDS = 300.0
_SILENCE_SECONDS = 30.0


class EmbeddedPostgres:
    """A local PostgreSQL, shared by all OS processes that name the same data directory.

    `with EmbeddedPostgres(path) as dsn: ...`; the last process that leaves ends the server. Without a path
    it uses the directory of the present folder. `bin_dir` is the folder of postgres, initdb and pg_ctl, if
    not one of the usual places. `settings` of PostgreSQL replace our own, if this process starts it. Raises
    StorageUnavailable if it cannot start.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        bin_dir: str | Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.home = Path(data_dir or default_data_dir()).expanduser().resolve()
        self._bin_dir = Path(bin_dir) if bin_dir else None
        self._settings = settings
        self._folder: Path | None = None
        self._users_lock: int | None = None

    @property
    def is_begun(self) -> bool:
        """True if the directory holds data already."""
        return major_of(self.home) is not None

    def start(self) -> str:
        """Start the server or attach to it; return the DSN of the database `progressor`, made if missing.

        May be called again, to bring back a server that died. Raises StorageUnavailable.
        """
        try:
            return self._start()
        except (OSError, subprocess.SubprocessError, psycopg.Error) as error:
            raise StorageUnavailable(
                f"the embedded PostgreSQL cannot be started: {error}; another data directory "
                "can be chosen with PROGRESSOR_DATA_DIR or the argument data_dir"
            ) from error

    def stop(self) -> None:
        """Leave the server; the last one to leave ends it and returns when it has ended."""
        if self._users_lock is None or self._folder is None:
            return
        # Closed, not unlocked: a forked child that still uses the server keeps a copy of the lock.
        os.close(self._users_lock)
        self._users_lock = None
        try:
            _leave(self._folder)
        except FileNotFoundError:
            # Somebody removed the server's directory; PostgreSQL notices that within a minute.
            logger.warning("embedded PostgreSQL lost its directory", extra=_fields(self._folder))

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> str:
        home = self.home
        installation = find_installation(self._bin_dir, major=major_of(home))
        account = server_account(home / f"pg{installation.major}" / lifetime.DATA)
        folder = prepare_folder(home, major=installation.major, account=account)
        self._folder = folder
        start_lock = _take(folder / lifetime.START_LOCK, fcntl.LOCK_EX)
        try:
            if self._users_lock is None:
                self._users_lock = _take(folder / lifetime.USERS_LOCK, fcntl.LOCK_SH)
            _ensure_watcher(folder)
            _ensure_server(folder, installation, account, self._settings)
        except BaseException:
            self.stop()
            raise
        finally:
            lifetime.let_go(start_lock)
        return _dsn(folder, DATABASE)


def _leave(folder: Path) -> None:
    users_lock = folder / lifetime.USERS_LOCK
    alone = lifetime.try_to_take(users_lock, fcntl.LOCK_EX)
    if alone is None:
        # Others use the server, or the watcher was faster and is ending it: then wait for that end.
        other = lifetime.try_to_take(users_lock, fcntl.LOCK_SH, seconds=_LOCK_SECONDS)
        if other is not None:
            lifetime.let_go(other)
        return
    try:
        if lifetime.stop_server(folder):
            logger.info("embedded PostgreSQL stopped", extra=_fields(folder))
        else:
            logger.error("embedded PostgreSQL does not stop", extra=_fields(folder))
    finally:
        lifetime.let_go(alone)


def _take(path: Path, operation: int) -> int:
    descriptor = lifetime.try_to_take(path, operation, seconds=_LOCK_SECONDS)
    if descriptor is None:
        raise StorageUnavailable(
            f"{path} is held by another process that has been starting or ending the embedded "
            f"PostgreSQL for {_LOCK_SECONDS:.0f} seconds"
        )
    return descriptor


def _ensure_watcher(folder: Path) -> None:
    """Start a watcher unless one lives: it ends the server if its last user is killed."""
    descriptor = lifetime.try_to_take(folder / lifetime.WATCHER_LOCK, fcntl.LOCK_EX)
    if descriptor is None:
        return
    try:
        subprocess.run(  # noqa: S603 - a script of our own
            [sys.executable, "-I", "-S", lifetime.__file__, folder, str(descriptor)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            pass_fds=[descriptor],
            start_new_session=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        # There is no Python to run it (a frozen or embedded interpreter): stop() works without it.
        logger.warning("embedded PostgreSQL has no watcher", extra={"error": str(error)})
    finally:
        os.close(descriptor)


def _ensure_server(
    folder: Path, installation: Installation, account: Account, settings: Mapping[str, str]
) -> None:
    """Attach to the living server, or start one; wait for the end of one that stops.

    A server that recovers from a crash may take any time, as long as it lives. StorageUnavailable if it
    does not start, or shows no status for 30 seconds.
    """
    launched = False
    refusal = "it is not ready"
    deadline = time.monotonic() + _SILENCE_SECONDS
    while time.monotonic() < deadline:
        server_lock = lifetime.try_to_take(folder / lifetime.SERVER_LOCK, fcntl.LOCK_EX)
        if server_lock is not None:
            try:
                if launched:
                    raise StorageUnavailable(f"PostgreSQL does not start; {log_tail(folder)}")
                launch(folder, installation, account, server_lock=server_lock, settings=settings)
            finally:
                os.close(server_lock)  # closed, not unlocked: the server has a copy
            launched = True
            deadline = time.monotonic() + _SILENCE_SECONDS
        status = lifetime.server_status(folder)
        if status == "ready":
            try:
                _ensure_database(folder)
            except psycopg.OperationalError as error:
                refusal = str(error)
            else:
                fields = _fields(folder, version=installation.version, launched=launched)
                logger.info("embedded PostgreSQL is ready", extra=fields)
                return
        elif status:
            deadline = time.monotonic() + _SILENCE_SECONDS
        time.sleep(lifetime.POLL_SECONDS)
    raise StorageUnavailable(f"PostgreSQL does not answer: {refusal}; {log_tail(folder)}")


def _ensure_database(folder: Path) -> None:
    dsn = _dsn(folder, "postgres")
    with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as connection:
        known = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
        if known.rowcount == 0:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def _dsn(folder: Path, database: str) -> str:
    host = quote(str(socket_dir(folder)), safe="")
    return f"postgresql://{SUPERUSER}@/{database}?host={host}&port={SOCKET_PORT}"


def _fields(folder: Path, **more: object) -> dict[str, object]:
    return {"folder": str(folder), **more}
