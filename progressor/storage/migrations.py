"""Bringing a database's schema to the one of this release, and refusing to run on any other.

The migrations stand in `alembic/` at the top of the source tree and inside the wheel as
`progressor/alembic`. All of an upgrade is one transaction under one advisory lock, so any number of
processes may migrate at once: the first does the work, the others find it done.

A migration that only adds says so (`additive`). Which is the oldest release that can work with the tables
as they are, stands in the database, as a comment on the version table: so a release that has never heard of
the newest migration can read it.

Rule: all that is ours stands in one schema, the version table too. Other tables of the database, other
migrations and their versions among them, are neither read nor touched.
"""

from __future__ import annotations

import io
import re
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
from progressor.loggers import Logger
from progressor.storage.catalog import Difference, differences, entries
from progressor.storage.postgres import session_setup, sqlstates
from progressor.storage.statements import STATEMENTS

log = Logger("progressor.migrations")

# Releases that are older than the tables look for this: its words are never changed.
_SAYS = "Revision {} works with releases from revision {} on."
_SAID = re.compile(r"Revision (\w+) works with releases from revision (\w+) on\.")
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


def oldest_served(revision: str) -> str:
    """The oldest revision whose release can work with the tables of this one."""
    script = ScriptDirectory.from_config(_config())
    while True:
        migration = script.get_revision(revision)
        before = migration.down_revision
        if not getattr(migration.module, "additive", False) or not isinstance(before, str):
            return revision
        revision = before


def statement_of_oldest(revision: str, schema: str) -> str:
    """The SQL that writes into a database at this revision which releases can work with it."""
    says = _SAYS.format(revision, oldest_served(revision))
    return f"COMMENT ON TABLE \"{schema}\".alembic_version IS '{says}'"


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
        connection = session_setup.connect_blocking(dsn, "progressor migrate")
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
        raise _translated(error, role=None, needs=sqlstates.TO_LOOK) from None


@contextmanager
def _connected(dsn: str, *, needs: str) -> Iterator[Connection]:
    """A connection whose errors come in words: without SQL, and with the privileges that are needed.

    Those of its end, too: SQLAlchemy then asks the server to roll back, on a connection that may be lost.
    """
    role = None
    try:
        with connect(dsn) as connection:
            role = cast("psycopg.Connection[Any]", connection.connection.driver_connection).info.user
            yield connection
    except (DBAPIError, psycopg.Error) as error:
        told = _translated(error, role=role, needs=needs)
        # Nobody's request: what stands in the database is in the way.
        raise SchemaMismatch(str(told)) if isinstance(told, InvalidRequest) else told from None


def _translated(error: DBAPIError | psycopg.Error, *, role: str | None, needs: str) -> ProgressorError:
    said = error.orig if isinstance(error, DBAPIError) else error
    return sqlstates.translated(cast("psycopg.Error", said), role=role, needs=needs)


def upgrade(
    dsn: str, revision: str = "head", *, schema: str = DEFAULT_SCHEMA
) -> tuple[str | None, str | None]:
    """Migrate up, or down to an older revision or "base"; the revisions before and after.

    Going down drops what the newer revisions hold.
    """
    config = _config()
    order = _order(revision)
    with _connected(dsn, needs=sqlstates.TO_MIGRATE) as connection, connection.begin():
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        before = _revision(connection, schema)
        if _is_newer(connection, before, schema, wanted=revision):
            # Whoever starts beside a newer release, and migrates first as always.
            return before, before
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
    with _connected(dsn, needs=sqlstates.TO_LOOK) as connection:
        before = _revision(connection, schema)
        if _is_newer(connection, before, schema, wanted=revision):
            return None
        if before is None or order.index(revision) >= order.index(before):
            return None
        count = select(func.count()).select_from(table("processes", schema=schema))
        return Descent(before, connection.execute(count).scalar_one())


def check(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> str:
    """The revision of the database; SchemaMismatch unless this release can work with its tables."""
    with _connected(dsn, needs=sqlstates.TO_LOOK) as connection:
        revision = _fit_revision(connection, schema)
        found = _differences(connection, schema)
    if needed := [str(each) for each in found if each.is_needed]:
        raise SchemaMismatch(
            f"the database is at revision {revision}, but {'; '.join(needed)}: make it as "
            "`progressor migrate --sql` does, and see who changed it"
        )
    for each in found:
        if not each.is_tuning:
            log.warning("schema differs", extra={"difference": str(each), "wanted": each.wanted})
    return revision


def check_revision(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> str:
    """The same by the revision alone: for a look at what is wrong with the tables."""
    with _connected(dsn, needs=sqlstates.TO_LOOK) as connection:
        return _fit_revision(connection, schema)


def compare(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> tuple[Difference, ...]:
    """All that is not as this release makes it, in a database whose revision is that of this release."""
    with _connected(dsn, needs=sqlstates.TO_LOOK) as connection:
        _fit_revision(connection, schema)
        return _differences(connection, schema)


def _differences(connection: Connection, schema: str) -> tuple[Difference, ...]:
    rows = connection.exec_driver_sql(STATEMENTS["catalog"], {"schema": schema})
    return differences(entries(rows, schema))


def _fit_revision(connection: Connection, schema: str) -> str:
    found = _revision(connection, schema)
    is_newer = _is_newer(connection, found, schema, wanted="head")
    if found is not None and is_newer:
        log.info("schema is newer, and serves this release", extra={"revision": found, "needs": head()})
        return found
    if found != head():
        says = f"has no progressor tables (schema {schema})" if found is None else f"is at revision {found}"
        raise SchemaMismatch(f"the database {says}, this release needs {head()}: run `progressor migrate`")
    return head()


def _revision(connection: Connection, schema: str) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table_schema": schema})
    return context.get_current_revision()


def _is_newer(connection: Connection, found: str | None, schema: str, *, wanted: str) -> bool:
    """Whether a release after this one migrated the database, in a way that serves this one too.

    SchemaMismatch if it does not, and for whoever wants another revision than the newest.
    """
    known = _revisions()
    if found is None or found in known:
        return False
    comment = select(func.obj_description(func.to_regclass(f'"{schema}".alembic_version'), "pg_class"))
    said = _SAID.search(connection.execute(comment).scalar_one() or "")
    # What we know reaches up to our own revision: what is among it is not newer than that.
    if wanted == "head" and said is not None and said[1] == found and said[2] in known:
        return True
    raise SchemaMismatch(
        f"the database is at revision {found}, which this release does not know (it needs "
        f"{head()}): upgrade the progressor package of this process"
    )
