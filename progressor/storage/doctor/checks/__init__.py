"""The invariants of the tables, one SQL file each, and their examination in one snapshot.

Rule: a file begins with the invariant in words, then `-- Reads:` what it reads; it selects `namespace`,
`process_id`, `task_id` and `found`, one row for each thing that contradicts it. Nothing here writes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import class_row

from progressor.config import DEFAULT_SCHEMA
from progressor.errors import NamespaceNotFound
from progressor.inputs import nearest_names
from progressor.storage.postgres import session_setup, sqlstates
from progressor.storage.postgres.first_connection import connect_at_start
from progressor.storage.schema_check import differences_in
from progressor.storage.statements import STATEMENTS, in_schema, with_fragments


class Check(NamedTuple):
    """One invariant: `rule` states it in words, `sql` finds what contradicts it."""

    name: str
    rule: str
    reads: str
    sql: str

    @property
    def is_quick(self) -> bool:
        """Return whether its cost depends only on what waits and runs, not on all that ever happened."""
        return "all " not in self.reads


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction to an invariant: its place, and what was found there."""

    namespace: str | None
    process_id: str | None
    task_id: int | None
    found: str


@dataclass(frozen=True, slots=True)
class Invariant:
    """An invariant, and the first findings that contradict it; `seconds` is how long its check took."""

    name: str
    rule: str
    findings: tuple[Finding, ...]
    more: bool
    seconds: float

    @property
    def holds(self) -> bool:
        """Return whether nothing contradicts it."""
        return not self.findings


def _read(name: str, sql: str) -> Check:
    lines = [line[3:] for line in sql.splitlines() if line.startswith("-- ")]
    place = next(place for place, line in enumerate(lines) if line.startswith("Reads: "))
    rule = " ".join(lines[:place])
    return Check(name, rule, lines[place].removeprefix("Reads: ").removesuffix("."), with_fragments(sql))


CHECKS: tuple[Check, ...] = tuple(
    _read(path.name.removesuffix(".sql"), path.read_text(encoding="utf-8"))
    for path in sorted(files(__package__).iterdir(), key=lambda path: path.name)
    if path.name.endswith(".sql")
)


def run(
    dsn: str,
    checks: Sequence[Check],
    params: Mapping[str, Any],
    *,
    most: int,
    within: timedelta | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> Iterator[Invariant]:
    """Yield the result of each check, with at most `most` findings, all in one snapshot of the database.

    Of what is not done `within` this time nothing is yielded.
    """
    role = None
    ends_at = math.inf if within is None else time.monotonic() + within.total_seconds()
    try:
        # Any server will do, a standby too.
        with connect_at_start(dsn, "progressor doctor", server="any") as connection:
            role = connection.info.user
            # One snapshot for all checks: a busy system gives no false alarm.
            connection.autocommit = False
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            connection.execute(session_setup.SETTINGS, session_setup.UNBOUNDED_TRANSACTION)
            _bound(connection, ends_at)
            # All rows of a cursor are wanted, so the planner must not prefer a fast first row.
            connection.execute("SET LOCAL cursor_tuple_fraction = 1")
            different = [str(each) for each in differences_in(connection, schema) if not each.is_tuning]
            params = {**params, "differences": different}
            _check_namespace(connection, params.get("namespace"), schema)
            for check in checks:
                _bound(connection, ends_at)
                yield _looked_at(connection, check._replace(sql=in_schema(check.sql, schema)), params, most)
    except psycopg.Error as error:
        if within is None or not isinstance(error, psycopg.errors.QueryCanceled):
            raise sqlstates.translated(error, role=role, needs=sqlstates.TO_LOOK) from None


def _check_namespace(connection: psycopg.Connection[Any], namespace: str | None, schema: str) -> None:
    """Raise NamespaceNotFound for a name that is not known, of which every invariant would hold."""
    if namespace is None:
        return
    rows = connection.execute(in_schema(STATEMENTS["namespace_names"], schema).encode())
    names = [str(name) for (name,) in rows]
    if namespace not in names:
        raise NamespaceNotFound(namespace, nearest_names(namespace, names))


def _bound(connection: psycopg.Connection[Any], ends_at: float) -> None:
    """Have the next statement end in time: PostgreSQL cancels it."""
    if ends_at < math.inf:
        left = max(1, int((ends_at - time.monotonic()) * 1000))
        connection.execute("SELECT set_config('statement_timeout', %s, TRUE)", [str(left)])


def _looked_at(
    connection: psycopg.Connection[Any], check: Check, params: Mapping[str, Any], most: int
) -> Invariant:
    began = time.monotonic()
    # A cursor on the server: of a million findings only the first ones travel.
    with connection.cursor(name="findings", row_factory=class_row(Finding)) as cursor:
        cursor.execute(check.sql.encode(), params)
        found = cursor.fetchmany(most + 1)
    seconds = time.monotonic() - began
    return Invariant(check.name, check.rule, tuple(found[:most]), len(found) > most, seconds)
