"""Migrations: they bring a database's schema to the one of this release.

The migrations stand in `alembic/` at the top of the source tree and inside the wheel as
`progressor/alembic`. All of an upgrade is one transaction under one advisory lock, so any number of
processes may migrate at once: the first does the work, the others find it done. A try ends soon if others
hold the tables, and is repeated.

Rule: all tables of the engine stand in one schema, the version table too. Nothing else in the database,
such as other migrations and their versions, is read or touched.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, cast

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, event, func, inspect, select, table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from progressor.config import DEFAULT_SCHEMA
from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.loggers import Logger
from progressor.storage.postgres import session_setup, sqlstates
from progressor.storage.postgres.first_connection import connect_at_start
from progressor.storage.schema_check import (
    OLDEST_RELEASE,
    check,
    check_revision,
    compare,
    folder,
    head,
    is_newer,
    noted_in,
    revision_of,
    revisions,
    translated,
)
from progressor.storage.statements import STATEMENTS
from progressor.storage.table_locks import TablesHeld, end_with_client, holders, is_held, lock_tables

__all__ = [
    "MIGRATION_LOCK",
    "check",
    "check_revision",
    "compare",
    "connect",
    "descent",
    "head",
    "oldest_served",
    "sql",
    "statement_of_oldest",
    "upgrade",
]

log = Logger("progressor.migrations")

# Seconds between two tries.
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
# Any constant will do; this one spells "prg".
MIGRATION_LOCK = 0x707267


def _config(output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output)
    # The option is interpolated: a percent sign in the path stands for itself.
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    return config


def oldest_served(revision: str) -> str:
    """Return the oldest revision whose release can work with the tables of this one."""
    script = ScriptDirectory.from_config(_config())
    while True:
        migration = script.get_revision(revision)
        before = migration.down_revision
        if not getattr(migration.module, "additive", False) or not isinstance(before, str):
            return revision
        revision = before


def statement_of_oldest(revision: str, schema: str) -> str:
    """Return the SQL that notes, in a database at this revision, which releases can work with it."""
    return f"COMMENT ON TABLE \"{schema}\".alembic_version IS '{_says_oldest(revision)}'"


def _says_oldest(revision: str) -> str:
    return OLDEST_RELEASE.format(revision, oldest_served(revision))


def sql(*, schema: str = DEFAULT_SCHEMA) -> str:
    """Return the whole upgrade from an empty database, as SQL."""
    output = io.StringIO()
    config = _config(output)
    config.attributes["schema"] = schema
    command.upgrade(config, "head", sql=True)
    return output.getvalue()


def connect(dsn: str) -> Connection:
    """Return a SQLAlchemy connection to any DSN that psycopg takes.

    Each transaction states its settings.
    """

    def open_() -> psycopg.Connection[Any]:
        connection = connect_at_start(dsn, "progressor migrate")
        connection.autocommit = False
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = connection.deferrable = False
        return connection

    engine = create_engine("postgresql+psycopg://", creator=open_, poolclass=NullPool, hide_parameters=True)

    @event.listens_for(engine, "begin")
    def _state_settings(connection: Connection) -> None:
        # Never for the session: a pooler may lend it to others.
        connection.exec_driver_sql(STATEMENTS["settings"], session_setup.UNBOUNDED_TRANSACTION)

    try:
        return engine.connect()
    except (DBAPIError, psycopg.Error) as error:
        raise translated(_cause(error), role=None, needs=sqlstates.TO_LOOK) from None


@contextmanager
def _connected(dsn: str, *, needs: str) -> Iterator[Connection]:
    """Yield a connection whose errors are translated: without SQL, and naming the privileges it needs.

    Errors on leaving are translated too: SQLAlchemy then rolls back, on a connection that may be lost.
    """
    role = None
    try:
        with connect(dsn) as connection:
            role = _driver(connection).info.user
            yield connection
    except (DBAPIError, psycopg.Error) as error:
        raise translated(_cause(error), role=role, needs=needs) from None


def _cause(error: DBAPIError | psycopg.Error) -> psycopg.Error:
    return cast("psycopg.Error", error.orig) if isinstance(error, DBAPIError) else error


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)


def upgrade(
    dsn: str,
    revision: str = "head",
    *,
    schema: str = DEFAULT_SCHEMA,
    patience: timedelta = timedelta(minutes=10),
) -> tuple[str | None, str | None]:
    """Migrate up, or down to an older revision or "base"; return the revisions before and after.

    Going down drops what the newer revisions hold. All work on the tables waits while they are changed, and
    while this waits for those that others hold: for three seconds, and then it pauses and tries again.
    StorageUnavailable, which names the holders, after `patience`.
    """
    order, until, pause = _order(revision), time.monotonic() + patience.total_seconds(), _FIRST_PAUSE
    while True:
        try:
            with _connected(dsn, needs=sqlstates.TO_MIGRATE) as connection:
                return _migrated(connection, revision, order, schema)
        except TablesHeld as held:
            if time.monotonic() + pause > until:
                raise StorageUnavailable(
                    f"nothing was migrated, others hold the tables: {held}. "
                    "End their transactions, or migrate later"
                ) from None
            log.warning(
                "tables are held by others, migrating again after a pause",
                extra={"holders": str(held), "seconds": pause},
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _migrated(
    connection: Connection, revision: str, order: Sequence[str], schema: str
) -> tuple[str | None, str | None]:
    try:
        with connection.begin():
            return _migrate(connection, revision, order, schema)
    except DBAPIError as error:
        if not is_held(_cause(error)):
            raise
    except psycopg.Error as error:
        if not is_held(error):
            raise
    with connection.begin():
        raise TablesHeld(holders(_driver(connection), schema))


def _migrate(
    connection: Connection, revision: str, order: Sequence[str], schema: str
) -> tuple[str | None, str | None]:
    """Migrate in the transaction of this connection; return the revisions before and after."""
    driver = _driver(connection)
    end_with_client(driver)
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
    before = revision_of(driver, schema)
    if is_newer(driver, before, schema, wanted=revision) or _is_there(driver, before, revision, schema):
        # Each start of a program may migrate first: mostly there is nothing to do, and no right is needed.
        return before, before
    lock_tables(driver, schema)
    if not inspect(connection).has_schema(schema):
        # Asked first: no right to create a schema is needed where it exists.
        connection.execute(CreateSchema(schema))
    config = _config()
    config.attributes.update(connection=connection, schema=schema)
    if order.index(revision) < order.index(before or "base"):
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)
    return before, revision_of(driver, schema)


def _is_there(driver: psycopg.Connection[Any], before: str | None, revision: str, schema: str) -> bool:
    wanted = head() if revision == "head" else revision
    return before == wanted and noted_in(driver, schema) == _says_oldest(wanted)


def _order(revision: str) -> list[str]:
    """Return all revisions that may be migrated to, oldest first; InvalidRequest for any other."""
    order = ["base", *(known := revisions()), "head"]
    if revision not in order:
        raise InvalidRequest(
            f"revision must be 'head', 'base' or one of {', '.join(known)}, not {revision!r}",
            field="revision",
        )
    return order


class Descent(NamedTuple):
    """A way down from the revision `before`, in a database of so many processes; it drops newer data."""

    before: str
    processes: int


def descent(dsn: str, revision: str, *, schema: str = DEFAULT_SCHEMA) -> Descent | None:
    """Return the way down to this revision, with the number of processes; None if it is no way down."""
    order = _order(revision)
    with _connected(dsn, needs=sqlstates.TO_LOOK) as connection:
        before = revision_of(_driver(connection), schema)
        if is_newer(_driver(connection), before, schema, wanted=revision):
            return None
        if before is None or order.index(revision) >= order.index(before):
            return None
        count = select(func.count()).select_from(table("processes", schema=schema))
        return Descent(before, connection.execute(count).scalar_one())
