"""A server for the tests of one run, which all its OS processes share; it ends with the last of them.

Rule: nothing of it is worth keeping, so it never waits for a disk, and its data go when the run ends. It
ends however the run ends: Ctrl-C, SIGKILL.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from progressor.embedded import EmbeddedPostgres, lifetime

# A server that is killed loses nothing all the same: what is committed is with the operating system.
_DISPOSABLE = {"fsync": "off", "full_page_writes": "off"}
_ENOUGH_BYTES = 4 << 30
# Seconds; a fast shutdown takes a fraction of one.
_END_SECONDS = 30.0


def fitting_folder() -> Path:
    """Return where servers of tests have their data: in memory, where there is enough of it."""
    memory, disk = Path("/dev/shm"), Path("/tmp")  # noqa: S108 - names in it are random
    if not os.access(memory, os.W_OK | os.X_OK):
        return disk
    found = os.statvfs(memory)
    # Programs that the server's user cannot reach are copied beside its data.
    is_fit = found.f_bavail * found.f_frsize >= _ENOUGH_BYTES and not found.f_flag & os.ST_NOEXEC
    return memory if is_fit else disk


def disposable_server(home: Path, *, bin_dir: Path | None = None) -> EmbeddedPostgres:
    """Return a server whose data nobody will miss, to start or to attach to."""
    return EmbeddedPostgres(home, bin_dir=bin_dir, settings=_DISPOSABLE)


def remove(home: Path) -> None:
    """Remove the data of a server, once it has ended: its last user may have left just now."""
    for folder in home.glob("pg*"):
        ended = lifetime.try_to_take(folder / lifetime.SERVER_LOCK, fcntl.LOCK_EX, seconds=_END_SECONDS)
        if ended is not None:
            os.close(ended)
    shutil.rmtree(home, ignore_errors=True)
