"""The plugin of pytest: a server for the run, a database for each test, and worlds on it.

Rule: pytest loads it in every run of everybody who has this package, so it imports nothing of the package
until a fixture is used. Its fixtures are plain functions, which every way of running async tests can use.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from progressor.testing.databases import TestDatabases
    from progressor.testing.world import MakeWorld

_URL = "PROGRESSOR_TEST_DATABASE_URL"
_PROGRAMS = "PROGRESSOR_POSTGRES_BIN_DIR"
_RUN = "PROGRESSOR_TEST_RUN"
_PLACES = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108 - the names in them are random
_named_run = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `progressor_test_database_url`."""
    parser.addini(_URL.lower(), f"URL of a PostgreSQL server on which tests make databases ({_URL})")


def pytest_configure(config: pytest.Config) -> None:
    """Name the run, once for all its OS processes; nothing is made of the name before a fixture is used."""
    if _RUN not in os.environ:
        config.stash[_named_run] = os.environ[_RUN] = secrets.token_hex(8)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what an embedded server of the run has left."""
    run = config.stash.get(_named_run, None)
    if run is None:
        return
    del os.environ[_RUN]
    for home in (place / _folder_of(run) for place in _PLACES):
        if home.exists():
            from progressor.testing.server import remove  # noqa: PLC0415 - see the rule

            remove(home)


def _folder_of(run: str) -> str:
    return f"progressor-test-{run}"


@pytest.fixture(scope="session")
def progressor_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """The DSN of a PostgreSQL server on which databases may be made.

    It is that of PROGRESSOR_TEST_DATABASE_URL, or of the setting `progressor_test_database_url`, or else an
    embedded one, which the workers of the run share.
    """
    if url := os.environ.get(_URL) or pytestconfig.getini(_URL.lower()):
        yield str(url)
        return
    from progressor.testing.server import disposable_server, fitting_folder  # noqa: PLC0415 - see the rule

    programs = os.environ.get(_PROGRAMS)
    home = fitting_folder() / _folder_of(os.environ[_RUN])
    with disposable_server(home, bin_dir=Path(programs) if programs else None) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def _progressor_databases(progressor_server: str) -> Iterator[TestDatabases]:
    from progressor.testing.databases import TestDatabases  # noqa: PLC0415 - see the rule

    with TestDatabases(progressor_server) as databases:
        yield databases


@pytest.fixture
def progressor_dsn(_progressor_databases: TestDatabases) -> Iterator[str]:
    """The DSN of a fresh database with all tables, which is dropped after the test."""
    dsn = _progressor_databases.make()
    yield dsn
    _progressor_databases.drop(dsn)


@pytest.fixture
def progressor_world(progressor_dsn: str) -> MakeWorld:
    """World on a fresh database: `async with progressor_world([billing], now=…) as world: …`."""
    from progressor.testing.world import World  # noqa: PLC0415 - see the rule

    return partial(World, progressor_dsn)
