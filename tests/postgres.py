"""Which PostgreSQL the tests start: the wheel's, or that of PROGRESSOR_TEST_POSTGRES_BIN_DIR.

Rule: a test that starts a server of its own takes it from here, unless it is about where the programs are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from progressor.embedded import EmbeddedPostgres, launch
from progressor.embedded.binaries import Installation, find_installation

VARIABLE = "PROGRESSOR_TEST_POSTGRES_BIN_DIR"

_named = os.environ.get(VARIABLE)
# Absolute, because some of the tests' processes work in another directory.
BIN_DIR = Path(_named).absolute() if _named else None

# With these a server that is killed loses nothing, as ever: what is committed is with the operating system.
# Only a crash of the machine would harm it, and no test has one.
_DISPOSABLE = {"fsync": "off", "full_page_writes": "off"}
_ENOUGH_BYTES = 4 << 30


def _place() -> Path:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK | os.X_OK):
        return Path("/tmp")
    found = os.statvfs(memory)
    # Programs that the server's user cannot reach are copied beside its data.
    is_fit = found.f_bavail * found.f_frsize >= _ENOUGH_BYTES and not found.f_flag & os.ST_NOEXEC
    return memory if is_fit else Path("/tmp")


# Where the tests' servers have their data: in memory, where there is enough of it.
PLACE = _place()


def embedded(data_dir: Path) -> EmbeddedPostgres:
    """A server of the tested version, to start or to attach to."""
    return EmbeddedPostgres(data_dir, bin_dir=BIN_DIR)


@contextmanager
def disposable(data_dir: Path) -> Iterator[str]:
    """The DSN of one that never waits for a disk, for all who do not measure."""
    server = embedded(data_dir)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _DISPOSABLE.items():
            patch.setitem(launch._SETTINGS, name, value)
        dsn = server.start()
    try:
        yield dsn
    finally:
        server.stop()


def installation() -> Installation:
    """Its programs. StorageUnavailable says what is wrong with them."""
    return find_installation(BIN_DIR)


def settings() -> dict[str, str]:
    """The variable that has a command start the same programs."""
    return {"PROGRESSOR_POSTGRES_BIN_DIR": str(BIN_DIR or "")}
