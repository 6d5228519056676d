"""The start of the server, on a cluster that initdb makes first if there is none.

Rule: the caller holds server.lock and passes it on, so any unfinished file in the folder is a leftover of
a process that was killed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from progressor.embedded import lifetime
from progressor.embedded.account import Account
from progressor.embedded.binaries import COPY_PREFIX, Installation
from progressor.embedded.folder import (
    SOCKET_PORT,
    START_LOG,
    give_to,
    log_tail,
    prepare_socket_dir,
    socket_dir,
)
from progressor.errors import StorageUnavailable

SUPERUSER = "progressor"

_INITDB_PREFIX = "initdb-"
_SETTINGS = {
    # What is accepted must be kept: these are never turned off.
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    # Only the socket, and only for the server's user and root: the mode of its directory keeps others
    # out, so the server can trust everybody who connects (initdb --auth=trust).
    "listen_addresses": "",
    "port": str(SOCKET_PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "checkpoint_timeout": "15min",
    # The hot tables are small and turn over fast.
    "autovacuum_naptime": "15s",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "cluster_name": "progressor",
    # Without "$user": the user has the name of our schema, and users' own tables must not land there.
    "search_path": "public",
    # One file per weekday, begun anew each week. Statements are never logged: they may hold payloads.
    "logging_collector": "on",
    "log_directory": "log",
    "log_filename": "postgresql-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
    "log_min_error_statement": "panic",
}


def launch(
    folder: Path,
    installation: Installation,
    account: Account,
    *,
    server_lock: int,
    settings: Mapping[str, str],
) -> None:
    """Start the server without waiting until it is ready; it keeps a copy of `server_lock`.

    StorageUnavailable if it cannot start, or another server works on the data.
    """
    prepare_socket_dir(folder, account)
    _sweep(folder)
    usable = installation.usable_by(account, folder=folder)
    if not (folder / lifetime.DATA).exists():
        _initialise(folder, usable, account, server_lock=server_lock)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    log = os.open(folder / START_LOG, flags, 0o600)
    try:
        # pg_ctl, because it starts postgres as a daemon, which is not our child.
        result = account.run(
            [usable.program("pg_ctl"), "start", "-W", "-s", "-o", _options(folder, settings)],
            environment={"PGDATA": str(folder / lifetime.DATA)},  # not -D: pg_ctl misquotes it
            output=log,
            inherit=[server_lock],
        )
    finally:
        os.close(log)
    if result.returncode != 0:
        raise StorageUnavailable(f"PostgreSQL does not start; {log_tail(folder)}")


def _sweep(folder: Path) -> None:
    """Remove leftovers of killed processes; StorageUnavailable if a foreign server works on the data."""
    pid = lifetime.server_pid(folder)
    if pid is not None:
        raise StorageUnavailable(
            f"a server that was not started by progressor (pid {pid}) works on "
            f"{folder / lifetime.DATA}: stop it with pg_ctl"
        )
    # PostgreSQL refuses to start if the pid in one of its old files is in use again, or defunct
    # because nobody reaps it: both are common in containers.
    for leftover in (folder / lifetime.DATA / "postmaster.pid", *socket_dir(folder).glob(".s.*")):
        leftover.unlink(missing_ok=True)
    for pattern in (f"{_INITDB_PREFIX}*", f"{COPY_PREFIX}new-*"):
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def _initialise(folder: Path, installation: Installation, account: Account, *, server_lock: int) -> None:
    """Run initdb beside its final place, and rename: a killed initdb leaves no half database."""
    fresh = Path(tempfile.mkdtemp(prefix=_INITDB_PREFIX, dir=folder))
    try:
        give_to(fresh, account)
        result = account.run(
            [
                installation.program("initdb"),
                f"--pgdata={fresh}",
                f"--username={SUPERUSER}",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",  # the same order and the same indexes, whatever the system's library
                "--data-checksums",
            ],
            inherit=[server_lock],
        )
        if result.returncode != 0:
            raise StorageUnavailable(f"initdb failed: {result.stdout.strip()}")
        fresh.rename(folder / lifetime.DATA)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    parent = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _options(folder: Path, changed: Mapping[str, str]) -> str:
    """Return the settings for pg_ctl, quoted for the shell to which it hands them."""
    # The setting is a list; in double quotes a path may contain commas.
    sockets = '"' + str(socket_dir(folder)).replace('"', '""') + '"'
    settings = {**_SETTINGS, **changed, "unix_socket_directories": sockets}
    words = ["-D", str(folder / lifetime.DATA)]
    for name, value in settings.items():
        words += ["-c", f"{name}={value}"]
    return shlex.join(words)
