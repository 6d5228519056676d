"""The locks of the server, the signs that it lives, and its end.

This module is also the watcher's script, which must not cost the memory of an application. Rule: standard
library only, nothing of progressor.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

START_LOCK = "start.lock"
USERS_LOCK = "users.lock"
SERVER_LOCK = "server.lock"
WATCHER_LOCK = "watcher.lock"
LOCKS = (START_LOCK, USERS_LOCK, SERVER_LOCK, WATCHER_LOCK)
DATA = "data"

POLL_SECONDS = 0.01
# Signals, and the seconds that each gets. SIGINT (fast): end all sessions, write a checkpoint. SIGQUIT
# (immediate): like a crash; the next start recovers.
SHUTDOWNS = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 20.0))
_STATUS_LINE = 7


def take(path: Path, operation: int) -> int:
    """Wait for a lock; it is held until every copy of the returned descriptor is closed.

    FileNotFoundError if the folder was removed: the lock's file is not made here.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def try_to_take(path: Path, operation: int, *, seconds: float = 0.0) -> int | None:
    """Take a lock as `take` does; None if it is still taken after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return take(path, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return None
        time.sleep(POLL_SECONDS)


def let_go(descriptor: int) -> None:
    """Unlock for all copies of the descriptor, also one that a concurrent fork made by accident."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def is_alive(folder: Path) -> bool:
    """Return whether initdb, the server or one of its processes lives; an orphaned backend counts."""
    try:
        probe = try_to_take(folder / SERVER_LOCK, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    if probe is not None:
        let_go(probe)
    return probe is None


def server_pid(folder: Path) -> int | None:
    """Return the postmaster's pid; None unless it is certain enough to send it a signal."""
    lines = _pid_file(folder)
    if not lines or not lines[0].isdigit():
        return None
    pid = int(lines[0])
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return None
    return pid if _works_on(folder / DATA, pid) else None


def server_status(folder: Path) -> str:
    """Return the status in the server's pid file: starting, ready or stopping; empty without one."""
    lines = _pid_file(folder)
    return lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else ""


def stop_server(folder: Path) -> bool:
    """End the server of the folder, return whether it ended; the caller holds users.lock exclusively."""
    for sign, seconds in SHUTDOWNS:
        deadline = time.monotonic() + seconds
        signalled = None
        while time.monotonic() < deadline:
            if not is_alive(folder):
                return True
            # Without a pid, a killed process had just started the server: it will have one in a moment.
            pid = server_pid(folder)
            if pid is not None and pid != signalled:
                signalled = pid
                with contextlib.suppress(ProcessLookupError):  # it ended in this moment
                    os.kill(pid, sign)
            time.sleep(POLL_SECONDS)
    return not is_alive(folder)


def watch(folder: Path, watcher_lock: int) -> None:
    """Sleep until no process uses the server, then end it."""
    # A signal to the whole process group (Ctrl-C) is meant for the users of the server. The watcher ends
    # when they have ended.
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)
    users = take(folder / USERS_LOCK, fcntl.LOCK_EX)
    stop_server(folder)
    # In this order: the process that gets users.lock next must not take us for its server's watcher.
    os.close(watcher_lock)
    os.close(users)


def _works_on(data: Path, pid: int) -> bool:
    """Return whether the process serves this data, and is not another program with an old pid."""
    process = Path("/proc", str(pid))
    if not Path("/proc/self").exists():
        return True
    try:
        try:
            return (process / "cwd").samefile(data)
        except PermissionError:
            # In a container root may lack the right to trace; the command line is readable for all.
            return os.fsencode(data) in (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False  # gone, or defunct


def _pid_file(folder: Path) -> list[str]:
    try:
        text = (folder / DATA / "postmaster.pid").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, PermissionError):
        return []
    return text.splitlines()


if __name__ == "__main__":
    if os.fork() == 0:  # so that the starter has no child to wait for
        watch(Path(sys.argv[1]), int(sys.argv[2]))
