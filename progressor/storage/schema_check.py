"""The schema of a database against the one of this release: a program starts only on one that serves it.

A migration that only adds is marked `additive`. The migration writes the oldest release that can work with
the tables into the database, as a comment on the version table: so a release that has never heard of the
newest migration can read it.

Rule: it only reads, and needs psycopg alone, because every start does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from progressor.storage.statements import STATEMENTS

log = Logger("progressor.migrations")

OLDEST_RELEASE = "Revision {} works with releases from revision {} on."
"""Releases that are older than the tables look for this: its words are never changed."""
_OLDEST_RELEASE = re.compile(r"Revision (\w+) works with releases from revision (\w+) on\.")


def folder() -> Path:
    """The folder of the migrations: `alembic/` at the top of the source tree, in the wheel inside."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "alembic"
    return inside if inside.is_dir() else package.parent / "alembic"


def revisions() -> list[str]:
    """All revisions that this release knows, oldest first: their files begin with them."""
    return sorted(path.name.partition("_")[0] for path in (folder() / "versions").glob("*_*.py"))


def head() -> str:
    """The revision that this release needs."""
    known = revisions()
    if not known:
        raise SchemaMismatch("this installation of progressor has no migrations: reinstall it")
    return known[-1]


def check(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> str:
    """The revision of the database; SchemaMismatch unless this release can work with its tables."""
    with _looking(dsn) as connection:
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
    with _looking(dsn) as connection:
        return _fit_revision(connection, schema)


def compare(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> tuple[Difference, ...]:
    """All that is not as this release makes it, in a database whose revision is that of this release."""
    with _looking(dsn) as connection:
        _fit_revision(connection, schema)
        return _differences(connection, schema)


@contextmanager
def _looking(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """One transaction for a look at the schema, with the settings that it relies on."""
    role = None
    try:
        with closing(session_setup.connect_blocking(dsn, "progressor migrate")) as connection:
            role = connection.info.user
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.read_only = connection.deferrable = False
            with connection.transaction():
                # Never for the session: a pooler may lend it to others.
                connection.execute(session_setup.SETTINGS, session_setup.UNBOUNDED_TRANSACTION)
                yield connection
    except psycopg.Error as error:
        raise translated(error, role=role, needs=sqlstates.TO_LOOK) from None


def translated(error: psycopg.Error, *, role: str | None, needs: str) -> ProgressorError:
    """The error of a look or a migration: what stands in its way is in the database, nobody's request."""
    meant = sqlstates.translated(error, role=role, needs=needs)
    return SchemaMismatch(str(meant)) if isinstance(meant, InvalidRequest) else meant


def _differences(connection: psycopg.Connection[Any], schema: str) -> tuple[Difference, ...]:
    rows = connection.execute(STATEMENTS["catalog"], {"schema": schema})
    return differences(entries(rows, schema))


def _fit_revision(connection: psycopg.Connection[Any], schema: str) -> str:
    found = revision_of(connection, schema)
    if found is not None and is_newer(connection, found, schema, wanted="head"):
        log.info("schema is newer, and serves this release", extra={"revision": found, "needs": head()})
        return found
    if found != head():
        says = f"has no progressor tables (schema {schema})" if found is None else f"is at revision {found}"
        raise SchemaMismatch(f"the database {says}, this release needs {head()}: run `progressor migrate`")
    return head()


def revision_of(connection: psycopg.Connection[Any], schema: str) -> str | None:
    """The revision of the database; None if it has no tables of ours."""
    versions = sql.Identifier(schema, "alembic_version")
    (there,) = connection.execute("SELECT to_regclass(%s)", [versions.as_string()]).fetchone() or (None,)
    if there is None:
        return None
    row = connection.execute(sql.SQL("SELECT version_num FROM {}").format(versions)).fetchone()
    return None if row is None else str(row[0])


def is_newer(connection: psycopg.Connection[Any], found: str | None, schema: str, *, wanted: str) -> bool:
    """Whether a release after this one migrated the database, in a way that serves this one too.

    SchemaMismatch if it does not, and for whoever wants another revision than the newest.
    """
    known = revisions()
    if found is None or found in known:
        return False
    versions = sql.Identifier(schema, "alembic_version").as_string()
    comment = "SELECT obj_description(to_regclass(%s), 'pg_class')"
    (text,) = connection.execute(comment, [versions]).fetchone() or (None,)
    oldest = _OLDEST_RELEASE.search(text or "")
    # What we know reaches up to our own revision: what is among it is not newer than that.
    if wanted == "head" and oldest is not None and oldest[1] == found and oldest[2] in known:
        return True
    raise SchemaMismatch(
        f"the database is at revision {found}, which this release does not know (it needs "
        f"{head()}): upgrade the progressor package of this process"
    )
