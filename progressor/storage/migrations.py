"""Migrations: they bring a database's schema to the one of this release.

The migrations stand in `alembic/` at the top of the source tree and inside the wheel as
`progressor/alembic`. All of an upgrade is one transaction under one advisory lock, so any number of
processes may migrate at once: the first does the work, the others find it done.

Rule: all tables of the engine stand in one schema, the version table too. Nothing else in the database,
such as other migrations and their versions, is read or touched.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
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
from progressor.errors import InvalidRequest
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
    revision_of,
    revisions,
    translated,
)
from progressor.storage.statements import STATEMENTS

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
    says = OLDEST_RELEASE.format(revision, oldest_served(revision))
    return f"COMMENT ON TABLE \"{schema}\".alembic_version IS '{says}'"


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
    dsn: str, revision: str = "head", *, schema: str = DEFAULT_SCHEMA
) -> tuple[str | None, str | None]:
    """Migrate up, or down to an older revision or "base"; return the revisions before and after.

    Going down drops what the newer revisions hold.
    """
    config = _config()
    order = _order(revision)
    with _connected(dsn, needs=sqlstates.TO_MIGRATE) as connection, connection.begin():
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        before = revision_of(_driver(connection), schema)
        if is_newer(_driver(connection), before, schema, wanted=revision):
            # A start beside a newer release migrates first as always: there is nothing to do.
            return before, before
        if not inspect(connection).has_schema(schema):
            # Asked first: no right to create a schema is needed where it exists.
            connection.execute(CreateSchema(schema))
        config.attributes.update(connection=connection, schema=schema)
        if order.index(revision) < order.index(before or "base"):
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)
        return before, revision_of(_driver(connection), schema)


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
