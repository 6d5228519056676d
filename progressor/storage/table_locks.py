"""The locks of a migration: on all tables, before it changes one, and never waited for long.

Rule: whoever works meanwhile holds one table and wants another, so locks that are taken as they come would
end in a deadlock. While a migration waits for a table that somebody holds, all others wait for the
migration: so it gives up soon, holds nothing during a pause, and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import class_row

import progressor.storage.schema  # noqa: F401 - the tables of the metadata
from progressor.storage.columns import metadata
from progressor.storage.statements import STATEMENTS

# How long a try waits for all the tables together.
_LOCK_TIMEOUT = "3s"
# How often the server looks whether the client is still there, even while it waits for a lock.
_LOOKS = "2s"
# Steps and claims take the process first, and its other rows then.
_FIRST = ("processes", "running", "schedule", "tasks")
_MOST_NAMED = 5
_EXISTING = """
SELECT c.relname
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND c.relname = ANY (%(tables)s::text[])
"""
_HOLDERS = """
SELECT
    a.pid, a.usename AS role, a.application_name AS application, a.backend_type AS kind,
    max(now() - coalesce(a.xact_start, p.prepared)) AS since,
    array_agg(DISTINCT c.relname::text ORDER BY c.relname::text) AS tables, p.gid AS prepared,
    l.virtualtransaction AS transaction
FROM pg_locks AS l
JOIN pg_class AS c ON c.oid = l.relation AND c.relkind = 'r'
JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts AS p ON l.pid IS NULL AND l.virtualtransaction = '-1/' || p.transaction::text
WHERE
    n.nspname = %(schema)s AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
    AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
GROUP BY a.pid, a.usename, a.application_name, a.backend_type, p.gid, l.virtualtransaction
"""


class Holder(NamedTuple):
    """A session, or a prepared transaction, that holds tables for as long as its transaction is open."""

    pid: int | None
    role: str | None
    application: str | None
    kind: str | None
    since: timedelta | None
    tables: Sequence[str]
    prepared: str | None
    transaction: str

    def __str__(self) -> str:
        who = f"the prepared transaction {self.prepared}" if self.pid is None else f"pid {self.pid}"
        facts = [self.kind if self.kind != "client backend" else None, self.application, self.role]
        about = ", ".join(each for each in facts if each)
        since = "" if self.since is None else f", open for {self.since.total_seconds():.0f} s"
        return f"{who}{f' ({about})' if about else ''}{since}: {', '.join(self.tables)}"


class TablesHeld(Exception):
    """Raised by a try to migrate whose tables others hold; `holders` are those that have them longest."""

    def __init__(self, holders: Sequence[Holder]) -> None:
        self.holders = holders
        super().__init__("; ".join(map(str, holders)) or "nobody any more")


class HoldersSeen:
    """The holders of the tables, over the tries of one migration.

    PostgreSQL tells only members of pg_read_all_stats since when a transaction of another role is open. For
    all others it counts from the try that met it first.
    """

    def __init__(self) -> None:
        self._first_seen: dict[str, float] = {}

    def longest(self, connection: psycopg.Connection[Any], schema: str) -> list[Holder]:
        """Return those whose transactions have held tables of the engine for longest, a few of them."""
        with connection.cursor(row_factory=class_row(Holder)) as cursor:
            found = cursor.execute(_HOLDERS, {"schema": schema}).fetchall()
        seen, now = self._first_seen, time.monotonic()
        self._first_seen = {each.transaction: seen.get(each.transaction, now) for each in found}
        lasting = [
            each._replace(since=timedelta(seconds=now - seen[each.transaction]))
            if each.since is None and each.transaction in seen
            else each
            for each in found
        ]
        return sorted(lasting, key=lambda each: each.since or timedelta(), reverse=True)[:_MOST_NAMED]


def is_held(error: psycopg.Error) -> bool:
    """Return whether a migration failed because of the locks of others: it was not their turn to wait."""
    return isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected)


def end_with_client(connection: psycopg.Connection[Any]) -> None:
    """Have the server end this transaction soon after its client is gone, even while it waits."""
    connection.execute(STATEMENTS["keepalives"].encode(), {"is_local": True})
    # Not every operating system of a server can look.
    with suppress(psycopg.errors.InvalidParameterValue), connection.transaction():
        connection.execute("SELECT set_config('client_connection_check_interval', %s, TRUE)", [_LOOKS])


def lock_tables(connection: psycopg.Connection[Any], schema: str) -> None:
    """Lock all tables of the engine for this transaction; LockNotAvailable if others hold one for long."""
    known = [
        *_FIRST,
        *sorted({each.name for each in metadata.tables.values()} - {*_FIRST}),
        "alembic_version",
    ]
    rows = connection.execute(_EXISTING, {"schema": schema, "tables": known})
    existing = {name for (name,) in rows}
    if existing:
        tables = sql.SQL(", ").join(sql.Identifier(schema, name) for name in known if name in existing)
        # A time-out of locks is one for each table, and this is for all.
        connection.execute("SELECT set_config('statement_timeout', %s, TRUE)", [_LOCK_TIMEOUT])
        try:
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(tables))
            # A time that is over as the last lock is got is told here.
            connection.execute("SELECT set_config('statement_timeout', '0', TRUE)")
        except psycopg.errors.QueryCanceled as late:
            raise psycopg.errors.LockNotAvailable(*late.args) from late
    connection.execute("SELECT set_config('lock_timeout', %s, TRUE)", [_LOCK_TIMEOUT])
