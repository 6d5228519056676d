"""The check of a database's schema: a program starts only on one that its release can work with.

A migration that only adds is marked `additive`. Migrating notes the oldest release that can work with the
tables in the database, as a comment on the version table: so a release that does not know the newest
migration can read it.

Rule: it only reads, but for a number that it may draw of a sequence that nobody has used yet; and it needs
psycopg alone, because every start does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from progressor.config import DEFAULT_SCHEMA
from progressor.errors import InvalidRequest, ProgressorError, SchemaMismatch
from progressor.loggers import Logger
from progressor.storage.catalog import Difference, differences, entries
from progressor.storage.postgres import session_setup, sqlstates
from progressor.storage.postgres.first_connection import connect_at_start
from progressor.storage.postgres.sequences import DRAWS, ServersMet, fault_of
from progressor.storage.postgres.session_setup import Server
from progressor.storage.statements import STATEMENTS, in_schema

log = Logger("progressor.migrations")

OLDEST_RELEASE = "Revision {} works with releases from revision {} on."
"""The text that releases older than the tables look for: its words are never changed."""
_OLDEST_RELEASE = re.compile(r"Revision (\w+) works with releases from revision (\w+) on\.")


# Differences that an error names.
_MOST_NAMED = 10


def folder() -> Path:
    """Return the folder of the migrations: `alembic/` in the wheel's package, or in the source tree."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "alembic"
    return inside if inside.is_dir() else package.parent / "alembic"


def revisions() -> list[str]:
    """Return all revisions that this release knows, oldest first: names of files begin with them."""
    return sorted(path.name.partition("_")[0] for path in (folder() / "versions").glob("*_*.py"))


def head() -> str:
    """Return the revision that this release needs; SchemaMismatch if there are no migrations."""
    known = revisions()
    if not known:
        raise SchemaMismatch("this installation of progressor has no migrations: reinstall it")
    return known[-1]


def check(dsn: str, *, schema: str = DEFAULT_SCHEMA, met: ServersMet | None = None) -> str:
    """Return the revision of the database; SchemaMismatch unless this release can work with its tables.

    If it can, `met` notes the server.
    """
    with _looking(dsn) as connection:
        revision = fit_revision(connection, schema)
        found = differences_in(connection, schema)
        _refuse(revision, [str(each) for each in found if each.is_needed])
        _refuse_numbers_given_again(connection, schema)
        if met is not None:
            met.note(connection)
    for each in found:
        if not each.is_tuning:
            log.warning("schema differs", extra={"difference": str(each), "wanted": each.wanted})
    return revision


def _refuse(revision: str, needed: Sequence[str]) -> None:
    """Raise SchemaMismatch, which names the first of these differences, if there is any."""
    if needed:
        named = [*needed[:_MOST_NAMED]]
        if len(needed) > _MOST_NAMED:
            named.append(f"there are {len(needed) - _MOST_NAMED} more differences")
        raise SchemaMismatch(
            f"the database is at revision {revision}, but {'; '.join(named)}: make it as "
            "`progressor migrate --sql` does, and see who changed it"
        )


def _refuse_numbers_given_again(connection: psycopg.Connection[Any], schema: str) -> None:
    """Raise SchemaMismatch if a sequence would give a number again, and this role would draw it."""
    if _rows(connection, "draws_numbers", schema) == DRAWS:
        fault = fault_of(_rows(connection, "numbers_behind", schema))
        if fault is not None:
            raise SchemaMismatch(fault)


def _rows(connection: psycopg.Connection[Any], statement: str, schema: str) -> list[tuple[Any, ...]]:
    return connection.execute(in_schema(STATEMENTS[statement], schema).encode()).fetchall()


def check_revision(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> bool:
    """Return whether the server, which may be any, is a standby; SchemaMismatch as `check` raises it.

    It compares no tables: to look at what is wrong with them.
    """
    with _looking(dsn, server="any") as connection:
        fit_revision(connection, schema)
        return connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (True,)


def compare(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> tuple[Difference, ...]:
    """Return all that is not as this release makes it; SchemaMismatch if the revision does not fit."""
    with _looking(dsn) as connection:
        fit_revision(connection, schema)
        return differences_in(connection, schema)


@contextmanager
def _looking(dsn: str, *, server: Server = "primary") -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection in one transaction, with the settings that a look at the schema relies on."""
    role = None
    try:
        with closing(connect_at_start(dsn, "progressor migrate", server=server)) as connection:
            role = connection.info.user
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            # A standby begins no transaction that may write.
            connection.read_only, connection.deferrable = server == "any", False
            with connection.transaction():
                # Never for the session: a pooler may lend it to others.
                connection.execute(session_setup.SETTINGS, session_setup.UNBOUNDED_TRANSACTION)
                yield connection
    except psycopg.Error as error:
        raise translated(error, role=role, needs=sqlstates.TO_LOOK) from None


def translated(error: psycopg.Error, *, role: str | None, needs: str) -> ProgressorError:
    """Return the error of a look or a migration.

    SchemaMismatch for InvalidRequest: the database is at fault.
    """
    meant = sqlstates.translated(error, role=role, needs=needs)
    return SchemaMismatch(str(meant)) if isinstance(meant, InvalidRequest) else meant


def differences_in(connection: psycopg.Connection[Any], schema: str) -> tuple[Difference, ...]:
    """Return what is not as this release makes it in the database of this connection.

    In the tables of a newer release that is what this one needs and does not find.
    """
    rows = connection.execute(STATEMENTS["catalog"], {"schema": schema})
    found = differences(entries(rows, schema))
    if revision_of(connection, schema) in revisions():
        return found
    # All else is as the newer release makes it: views with more columns, indexes for its own searches.
    return tuple(each for each in found if each.is_needed and each.found is None)


def fit_revision(connection: psycopg.Connection[Any], schema: str) -> str:
    """Return the revision of the database; SchemaMismatch unless it is one that this release works with."""
    found = revision_of(connection, schema)
    if found is not None and is_newer(connection, found, schema, wanted="head"):
        log.info("schema is newer, and serves this release", extra={"revision": found, "needs": head()})
        return found
    if found != head():
        says = f"has no progressor tables (schema {schema})" if found is None else f"is at revision {found}"
        raise SchemaMismatch(f"the database {says}, this release needs {head()}: run `progressor migrate`")
    return head()


def revision_of(connection: psycopg.Connection[Any], schema: str) -> str | None:
    """Return the revision of the database; None if it has no tables of the engine."""
    versions = sql.Identifier(schema, "alembic_version")
    (there,) = connection.execute("SELECT to_regclass(%s)", [versions.as_string()]).fetchone() or (None,)
    if there is None:
        return None
    row = connection.execute(sql.SQL("SELECT version_num FROM {}").format(versions)).fetchone()
    return None if row is None else str(row[0])


def noted_in(connection: psycopg.Connection[Any], schema: str) -> str | None:
    """Return the comment in which a database says which releases can work with it; None without one."""
    versions = sql.Identifier(schema, "alembic_version").as_string()
    comment = "SELECT obj_description(to_regclass(%s), 'pg_class')"
    (text,) = connection.execute(comment, [versions]).fetchone() or (None,)
    return None if text is None else str(text)


def is_newer(connection: psycopg.Connection[Any], found: str | None, schema: str, *, wanted: str) -> bool:
    """Return whether a newer release migrated the database, to tables that serve this release too.

    SchemaMismatch if they do not, or if `wanted` is not "head".
    """
    known = revisions()
    if found is None or found in known:
        return False
    oldest = _OLDEST_RELEASE.search(noted_in(connection, schema) or "")
    # `known` ends at the revision of this release: one that is in it is not newer.
    if wanted == "head" and oldest is not None and oldest[1] == found and oldest[2] in known:
        return True
    raise SchemaMismatch(
        f"the database is at revision {found}, which this release does not know (it needs "
        f"{head()}): upgrade the progressor package of this process"
    )
