"""The tables of both databases, compared by SQL alone, without any code of the product.

Rule: each column is compared, or stands among those that may differ. Tasks are known by their places among
those of their processes: their numbers are new on the other side, in the old order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import LiteralString, NamedTuple

import psycopg
from psycopg import sql

_PLACES: LiteralString = """
CREATE TEMPORARY TABLE places AS
SELECT
    t.process_no, t.task_id, row_number() OVER (PARTITION BY t.process_no ORDER BY t.task_id) AS place
FROM progressor.tasks AS t
JOIN progressor.processes AS p USING (process_no)
JOIN progressor.namespaces AS n USING (namespace_no)
WHERE n.name = {namespace}
"""
_ROWS: LiteralString = """
COPY (
    SELECT p.process_id COLLATE "C", {row}, {shown}
    FROM progressor.{table} AS x
    JOIN progressor.processes AS p ON p.process_no = x.process_no
    JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
    LEFT JOIN places AS l ON l.process_no = x.process_no AND l.task_id = x.{task}
    LEFT JOIN progressor.groups AS g ON g.group_no = {group}
    WHERE n.name = {namespace}
    ORDER BY 1, 2
) TO STDOUT
"""
_COLUMNS: LiteralString = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = 'progressor' AND table_name = %s ORDER BY ordinal_position
"""
_REDONE: LiteralString = """
CASE
    WHEN NOT starts_with(x.idempotency_key, 'progressor:redo:') THEN x.idempotency_key
    ELSE 'redo of ' || (
        SELECT r.place FROM places AS r
        WHERE r.process_no = x.process_no AND r.task_id = split_part(x.idempotency_key, ':', 3)::bigint
    )
END
"""
# The place of a message among those of its sender.
_SENT: LiteralString = """
(
    SELECT count(*) FROM progressor.outbox AS o
    WHERE o.process_no + 0 = x.process_no AND o.sent_no < x.sent_no
)
"""
_MOST_SHOWN = 200


class ComparedTable(NamedTuple):
    """A table: the number of a row, what is compared in place of some columns, and what may differ."""

    row: LiteralString
    shown: dict[str, LiteralString]
    may_differ: frozenset[str] = frozenset()
    task: LiteralString = "task_id"


_TASK: dict[str, LiteralString] = {"task_id": "l.place"}
_OF_GROUP: dict[str, LiteralString] = {"group_no": "g.group_key"}
TABLES: dict[str, ComparedTable] = {
    "processes": ComparedTable(
        "0",
        _OF_GROUP | {"corrupted_by": "l.place", "swept_until": "x.swept_until IS NOT NULL"},
        frozenset({"birth"}),
        task="corrupted_by",
    ),
    # Who waited for an answer, and under which claim it was made, counts while a task runs.
    "tasks": ComparedTable(
        "l.place", _TASK | {"idempotency_key": _REDONE}, frozenset({"reply_to", "lease"})
    ),
    "events": ComparedTable("x.event_id", _TASK),
    "schedule": ComparedTable("l.place", _TASK | _OF_GROUP),
    "outbox": ComparedTable("l.place * 1000 + x.n", _TASK | {"sent_no": _SENT}),
    "running": ComparedTable("l.place", _TASK | _OF_GROUP),
}
# Numbers of this database, for what is known by its name.
_NUMBERS = frozenset({"process_no", "namespace_no"})

Rows = Iterator[Sequence[bytes]]


class Sides:
    """Both databases, read while nothing changes in them."""

    def __init__(self, source: str, target: str, namespace: str) -> None:
        self._namespace = sql.Literal(namespace)
        self._sides = [psycopg.connect(dsn) for dsn in (source, target)]
        self.rows: dict[str, int] = {}
        for side in self._sides:
            side.execute("SET timezone = 'UTC'")
            side.execute("SET work_mem = '128MB'")
            side.execute(sql.SQL(_PLACES).format(namespace=self._namespace))
            side.execute("CREATE INDEX ON places (process_no, task_id)")
            side.execute("ANALYZE places")

    def close(self) -> None:
        """Close the connections."""
        for side in self._sides:
            side.close()

    def differences(self) -> Iterator[str]:
        """Yield what differs, table by table; afterwards `rows` has the rows of each in the source."""
        for name, table in TABLES.items():
            columns = self._columns(name, table)
            left, right = (self._rows(side, name, table, columns) for side in self._sides)
            self.rows[name] = 0
            yield from compared(name, ["process_id", "row", *columns], self._counted(name, left), right)

    def _columns(self, name: str, table: ComparedTable) -> list[str]:
        """Return the columns of a table that are compared."""
        found = [column for (column,) in self._sides[0].execute(_COLUMNS, [name])]
        return [each for each in found if each not in _NUMBERS | table.may_differ]

    def _counted(self, name: str, rows: Rows) -> Rows:
        """Yield the rows, and count them."""
        for row in rows:
            self.rows[name] += 1
            yield row

    def _rows(self, side: psycopg.Connection, name: str, table: ComparedTable, columns: list[str]) -> Rows:
        """Yield the rows of a side as texts, in the order of processes."""
        has_group = "group_no" in table.shown
        statement = sql.SQL(_ROWS).format(
            row=sql.SQL(table.row),
            shown=sql.SQL(", ").join(
                sql.SQL(table.shown[each]) if each in table.shown else sql.Identifier("x", each)
                for each in columns
            ),
            table=sql.Identifier(name),
            task=sql.Identifier(table.task),
            group=sql.SQL("x.group_no" if has_group else "NULL"),
            namespace=self._namespace,
        )
        with side.cursor() as cursor, cursor.copy(statement) as lines:
            for line in lines:
                yield bytes(line).rstrip(b"\n").split(b"\t")


def compared(name: str, columns: Sequence[str], left: Rows, right: Rows) -> Iterator[str]:
    """Yield what differs between two streams of rows, both in the order of process and number."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and _place(one) < _place(other)):
            yield f"{_named(name, one)} is missing in the target"
            one = next(left, None)
        elif one is None or _place(other) < _place(one):
            yield f"{_named(name, other)} is not in the source"
            other = next(right, None)
        else:
            if one != other:
                yield f"{_named(name, one)}: {'; '.join(_cells(columns, one, other))}"
            one, other = next(left, None), next(right, None)


def _place(row: Sequence[bytes]) -> tuple[bytes, int]:
    """Return the place of a row in the order of its stream."""
    return row[0], int(row[1])


def _named(name: str, row: Sequence[bytes] | None) -> str:
    """Name a row."""
    assert row is not None
    return f"{name}, {row[0].decode()}, row {row[1].decode()}"


def _cells(columns: Sequence[str], one: Sequence[bytes], other: Sequence[bytes]) -> Iterator[str]:
    """Yield the columns that differ, with both values."""
    shown: Callable[[bytes], str] = lambda cell: cell.decode()[:_MOST_SHOWN]  # noqa: E731
    for column, left, right in zip(columns, one, other, strict=True):
        if left != right:
            yield f"{column} is {shown(right)} and was {shown(left)}"
