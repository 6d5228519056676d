"""Bringing a database's schema to the one of this release, and refusing to run on any other.

The migrations stand in `alembic/` at the top of the source tree and inside the wheel as
`progressor/alembic`. All of an upgrade is one transaction under one advisory lock, so any number of
processes may migrate at once: the first does the work, the others find it done.

Rule: all that is ours stands in one schema, the version table too. Other tables of the database, other
migrations and their versions among them, are neither read nor touched.
"""

from __future__ import annotations

import io
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from progressor.config import DEFAULT_SCHEMA
from progressor.errors import InvalidRequest, SchemaMismatch, StorageUnavailable

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
    """A connection of SQLAlchemy to any DSN that psycopg takes."""
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(dsn, application_name="progressor migrate"),
        poolclass=NullPool,
    )
    try:
        return engine.connect()
    except OperationalError as error:
        raise StorageUnavailable(f"PostgreSQL cannot be reached: {error.orig}") from None


def upgrade(
    dsn: str, revision: str = "head", *, schema: str = DEFAULT_SCHEMA
) -> tuple[str | None, str | None]:
    """Migrate up, or down to an older revision or "base"; the revisions before and after.

    Going down drops what the newer revisions hold.
    """
    known = _revisions()
    if revision not in ("base", "head", *known):
        raise InvalidRequest(
            f"revision must be 'head', 'base' or one of {', '.join(known)}, not {revision!r}",
            field="revision",
        )
    config = _config()
    with connect(dsn) as connection, connection.begin():
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        before = _revision(connection, schema)
        _refuse_newer(before)
        if not inspect(connection).has_schema(schema):
            # Asked first: the right to make one is not needed where somebody has made it.
            connection.execute(CreateSchema(schema))
        config.attributes.update(connection=connection, schema=schema)
        order = ["base", *known, "head"]
        if order.index(revision) < order.index(before or "base"):
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)
        return before, _revision(connection, schema)


def check(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> None:
    """Raise SchemaMismatch unless the database has exactly the tables of this release."""
    with connect(dsn) as connection:
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
