"""Bringing a database's schema to the one of this release, and refusing to run on any other.

The migrations stand in `alembic/` at the top of the source tree and inside the wheel as
`progressor/alembic`. All of an upgrade is one transaction under one advisory lock, so any number of
processes may migrate at once: the first does the work, the others find it done.

Rule: all that is ours stands in one schema, the version table too. Other tables of the database, other
migrations and their versions among them, are neither read nor touched.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, event, func, inspect, select, table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from progressor.config import DEFAULT_SCHEMA
from progressor.errors import InvalidRequest, ProgressorError, SchemaMismatch
from progressor.storage import opening, refusals
from progressor.storage.statements import STATEMENTS

# Any constant will do; this one spells "prg".
MIGRATION_LOCK = 0x707267


def _config(output: io.StringIO | None = None) -> Config:
    package = Path(__file__).resolve().parent.parent
    inside = package / "alembic"
    folder = inside if inside.is_dir() else package.parent / "alembic"
    config = Config(output_buffer=output)
    # The option is interpolated: a percent sign in the path stands for itself.
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def _revisions() -> list[str]:
    """All revisions that this release knows, oldest first."""
    script = ScriptDirectory.from_config(_config())
    return [each.revision for each in script.walk_revisions()][::-1]


def head() -> str:
    """The revision that this release needs."""
    known = _revisions()
    if not known:
        raise SchemaMismatch("this installation of progressor has no migrations: reinstall it")
    return known[-1]


def sql(*, schema: str = DEFAULT_SCHEMA) -> str:
    """The whole upgrade from an empty database, as SQL."""
    output = io.StringIO()
    config = _config(output)
    config.attributes["schema"] = schema
    command.upgrade(config, "head", sql=True)
    return output.getvalue()


def connect(dsn: str) -> Connection:
    """A connection of SQLAlchemy to any DSN that psycopg takes; its transactions state their settings."""

    def open_() -> psycopg.Connection[Any]:
        connection = opening.connect_blocking(dsn, "progressor migrate")
        connection.autocommit = False
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = connection.deferrable = False
        return connection

    engine = create_engine("postgresql+psycopg://", creator=open_, poolclass=NullPool, hide_parameters=True)

    @event.listens_for(engine, "begin")
    def _state_settings(connection: Connection) -> None:
        # Never for the session: a pooler may lend it to others.
        connection.exec_driver_sql(STATEMENTS["settings"], opening.UNBOUNDED_TRANSACTION)

    try:
        return engine.connect()
    except DBAPIError as error:
        raise _translated(error, role=None, needs=refusals.TO_LOOK) from None


@contextmanager
def _connected(dsn: str, *, needs: str) -> Iterator[Connection]:
    """A connection whose errors come in words: without SQL, and with the privileges that are needed."""
    with connect(dsn) as connection:
        role = cast("psycopg.Connection[Any]", connection.connection.driver_connection).info.user
        try:
            yield connection
        except DBAPIError as error:
            told = _translated(error, role=role, needs=needs)
            # Nobody's request: what stands in the database is in the way.
            raise SchemaMismatch(str(told)) if isinstance(told, InvalidRequest) else told from None


def _translated(error: DBAPIError, *, role: str | None, needs: str) -> ProgressorError:
    return refusals.translated(cast("psycopg.Error", error.orig), role=role, needs=needs)


def upgrade(
    dsn: str, revision: str = "head", *, schema: str = DEFAULT_SCHEMA
) -> tuple[str | None, str | None]:
    """Migrate up, or down to an older revision or "base"; the revisions before and after.

    Going down drops what the newer revisions hold.
    """
    config = _config()
    order = _order(revision)
    with _connected(dsn, needs=refusals.TO_MIGRATE) as connection, connection.begin():
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        before = _revision(connection, schema)
        _refuse_newer(before)
        if not inspect(connection).has_schema(schema):
            # Asked first: the right to make one is not needed where somebody has made it.
            connection.execute(CreateSchema(schema))
        config.attributes.update(connection=connection, schema=schema)
        if order.index(revision) < order.index(before or "base"):
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)
        return before, _revision(connection, schema)


def _order(revision: str) -> list[str]:
    """All that may be migrated to, oldest first; the wanted one must be among them."""
    order = ["base", *(known := _revisions()), "head"]
    if revision not in order:
        raise InvalidRequest(
            f"revision must be 'head', 'base' or one of {', '.join(known)}, not {revision!r}",
            field="revision",
        )
    return order


class Descent(NamedTuple):
    """A way down: what newer revisions hold will be dropped, in a database of so many processes."""

    before: str
    processes: int


def descent(dsn: str, revision: str, *, schema: str = DEFAULT_SCHEMA) -> Descent | None:
    """Whether a migration to this revision goes down, and with how many processes; None if it does not."""
    order = _order(revision)
    with _connected(dsn, needs=refusals.TO_LOOK) as connection:
        before = _revision(connection, schema)
        _refuse_newer(before)
        if before is None or order.index(revision) >= order.index(before):
            return None
        count = select(func.count()).select_from(table("processes", schema=schema))
        return Descent(before, connection.execute(count).scalar_one())


def check(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> None:
    """Raise SchemaMismatch unless the database has exactly the tables of this release."""
    with _connected(dsn, needs=refusals.TO_LOOK) as connection:
        found = _revision(connection, schema)
    _refuse_newer(found)
    if found != head():
        says = f"has no progressor tables (schema {schema})" if found is None else f"is at revision {found}"
        raise SchemaMismatch(f"the database {says}, this release needs {head()}: run `progressor migrate`")


def _revision(connection: Connection, schema: str) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table_schema": schema})
    return context.get_current_revision()


def _refuse_newer(found: str | None) -> None:
    if found is not None and found not in _revisions():
        raise SchemaMismatch(
            f"the database is at revision {found}, which this release does not know (it needs "
            f"{head()}): upgrade the progressor package of this process"
        )
