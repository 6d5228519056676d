"""One server per run, one migrated template per worker of the run, one database per test.

Rule: PostgreSQL is the only double. No database is an error, never a skip.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql

from progressor.errors import StorageUnavailable
from progressor.storage import migrations, with_database
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.statements import Transaction
from tests import postgres, shares
from tests.support import NS, Tables, check_invariants

_URL = "PROGRESSOR_TEST_DATABASE_URL"
_HOME = "PROGRESSOR_TEST_HOME"
_made_home = pytest.StashKey[Path]()

# An example takes as long as the machine does.
settings.register_profile(
    "any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """Name one place for the embedded server, which all workers of the run inherit."""
    config.addinivalue_line("markers", shares.MARKER)
    if os.environ.get(_URL) and postgres.BIN_DIR is not None:
        raise pytest.UsageError(f"{_URL} and {postgres.VARIABLE} name two servers: unset one")
    if not os.environ.get(_URL) and _HOME not in os.environ:
        home = Path(tempfile.mkdtemp(prefix="prg-tests-", dir=postgres.PLACE))
        home.chmod(0o755)  # as root, the server is another user
        config.stash[_made_home] = home
        os.environ[_HOME] = str(home)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make test` leaves to `make test-matrix`."""
    left = shares.left_out(config, items)
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in set(left)]


def pytest_unconfigure(config: pytest.Config) -> None:
    home = config.stash.get(_made_home, None)
    if home is not None:
        del os.environ[_HOME]
        shutil.rmtree(home, ignore_errors=True)


def pytest_report_header() -> str:
    """The version under test; never where it is, which may be a secret."""
    try:
        if url := os.environ.get(_URL):
            with psycopg.connect(url, connect_timeout=10) as connection:
                return f"PostgreSQL: {connection.info.parameter_status('server_version')}, of {_URL}"
        return f"PostgreSQL: {postgres.installation().version}, embedded"
    except (StorageUnavailable, psycopg.Error) as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that runs in this process sets up logging for all of it; no other test hears of that."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {logger: logger.level for logger in _loggers()}
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for logger in _loggers():
        # One that was made since has no level of its own.
        before = levels.get(logger, logging.NOTSET)
        if logger.level != before:
            logger.setLevel(before)


def _loggers() -> list[logging.Logger]:
    known = logging.getLogger().manager.loggerDict.values()
    return [each for each in known if isinstance(each, logging.Logger)]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The DSN of a server on which databases may be made."""
    if url := os.environ.get(_URL):
        yield url
    else:
        with postgres.disposable(Path(os.environ[_HOME]) / "postgres") as dsn:
            yield dsn


class Databases:
    """Makes and drops databases; drops come in lots, because each begins with a checkpoint."""

    def __init__(self, server: str, admin: psycopg.Connection) -> None:
        self._server, self._admin = server, admin
        self._finished: list[str] = []

    def make(self, template: str = "template1") -> str:
        name = f"prg_test_{uuid4().hex}"
        # Files are copied as they are: where nobody waits for a disk, that is the faster way.
        copied = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        self._admin.execute(copied.format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def dsn(self, name: str) -> str:
        return with_database(self._server, name)

    def drop(self, name: str, *, lot: int = 16) -> None:
        self._finished.append(name)
        if len(self._finished) >= lot:
            self.drop_all()

    def drop_all(self) -> None:
        while self._finished:
            name = sql.Identifier(self._finished.pop())
            self._admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.fixture(scope="session")
def databases(server: str) -> Iterator[Databases]:
    with psycopg.connect(server, autocommit=True) as admin:
        made = Databases(server, admin)
        yield made
        made.drop_all()


@pytest.fixture(scope="session")
def template(databases: Databases) -> Iterator[str]:
    """The name of a migrated database to copy."""
    name = databases.make()
    migrations.upgrade(databases.dsn(name))
    yield name
    databases.drop(name)


@pytest.fixture
def dsn(databases: Databases, template: str) -> Iterator[str]:
    """A fresh database with all tables, empty."""
    name = databases.make(template)
    yield databases.dsn(name)
    databases.drop(name)


@pytest.fixture
def empty_dsn(databases: Databases) -> Iterator[str]:
    """A fresh database without tables."""
    name = databases.make()
    yield databases.dsn(name)
    databases.drop(name)


@pytest.fixture
async def storage(dsn: str) -> AsyncIterator[Storage]:
    """Storage on a fresh database, whose invariants must hold at the end of the test."""
    connections = SessionPool(dsn, limit=8)
    storage = Storage(connections, patience=timedelta(seconds=10))
    await storage.register_namespace(NS, options={}, schemas={})
    yield storage
    await connections.close()
    check_invariants(dsn)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The statements that sessions sent since it was last cleared."""
    found: set[str] = set()
    send = Session._send

    async def noted(session: Session, statements: Transaction, hints: Any = None) -> Any:
        found.update(statements)
        return await send(session, statements, hints)

    monkeypatch.setattr(Session, "_send", noted)
    return found


@pytest.fixture
def tables(dsn: str) -> Iterator[Tables]:
    """What the tables say, read and written behind the engine's back."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield Tables(connection)
