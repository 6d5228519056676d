"""Which PostgreSQL the tests start: the wheel's, or that of PROGRESSOR_TEST_POSTGRES_BIN_DIR.

Rule: a test that starts a server of its own takes it from here, unless it is about where the programs are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from progressor.embedded import EmbeddedPostgres
from progressor.embedded.binaries import Installation, find_installation
from progressor.testing.server import disposable_server, fitting_folder

VARIABLE = "PROGRESSOR_TEST_POSTGRES_BIN_DIR"

_named = os.environ.get(VARIABLE)
# Absolute, because some of the tests' processes work in another directory.
BIN_DIR = Path(_named).absolute() if _named else None

# Where the tests' servers have their data: in memory, where there is enough of it.
PLACE = fitting_folder()


def embedded(data_dir: Path) -> EmbeddedPostgres:
    """A server of the tested version, to start or to attach to."""
    return EmbeddedPostgres(data_dir, bin_dir=BIN_DIR)


@contextmanager
def disposable(data_dir: Path) -> Iterator[str]:
    """The DSN of one that never waits for a disk, for all who do not measure."""
    with disposable_server(data_dir, bin_dir=BIN_DIR) as dsn:
        yield dsn


def installation() -> Installation:
    """Its programs. StorageUnavailable says what is wrong with them."""
    return find_installation(BIN_DIR)


def settings() -> dict[str, str]:
    """The variable that has a command start the same programs."""
    return {"PROGRESSOR_POSTGRES_BIN_DIR": str(BIN_DIR or "")}


def environment_of_a_run(**more: str) -> dict[str, str]:
    """The environment of another run of pytest than this one, with the PostgreSQL under test."""
    of_this = ("PYTEST_", "PROGRESSOR_TEST_RUN")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(of_this)}
    return {**kept, **{name: value for name, value in settings().items() if value}, **more}
