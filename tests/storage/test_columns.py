"""The columns of a batch come back from PostgreSQL as they were sent, NULLs and all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.adapt import Dumper
from psycopg.pq import Format

from progressor.storage.postgres import arrays


class Sent(bytes):
    """Bytes that travel as they are, in PostgreSQL's binary format."""


class SentDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Sent) -> Sent:
        return obj


_NOON = datetime(2026, 3, 29, 12, 0, 0, 1, tzinfo=UTC)
_COLUMNS: list[tuple[Callable[[Any], bytes | None], str, Any, Any]] = [
    (arrays.texts, "text", "", 'käse \N{SNOWMAN} \\ "'),
    (arrays.jsons, "jsonb", '{"a": [1, null]}', "null"),
    (arrays.blobs, "bytea", b"", b"\x00\xff"),
    (arrays.bigints, "bigint", 0, -(2**63)),
    (arrays.booleans, "boolean", False, True),
    (arrays.timestamps, "timestamptz", _NOON, _NOON - timedelta(days=365 * 100)),
]


@pytest.mark.parametrize(("column", "kind", "one", "other"), _COLUMNS, ids=lambda value: str(value)[:12])
@pytest.mark.parametrize(
    "pattern", ["", "1", "-", "11", "12", "--", "1-", "-1", "12-"], ids=lambda pattern: pattern or "empty"
)
def test_a_column_beside_another(
    column: Callable[[Sequence[Any]], bytes | None], kind: str, one: Any, other: Any, pattern: str, dsn: str
) -> None:
    """Each row has its value, whether the column has one, several, the same in all rows, or NULLs alone."""
    values = [{"1": one, "2": other, "-": None}[each] for each in pattern]
    columns = arrays.bigints(range(len(values))), column(values)
    numbers, sent = (None if each is None else Sent(each) for each in columns)
    shown = "::text" if kind == "jsonb" else ""
    with psycopg.connect(dsn) as connection:
        connection.adapters.register_dumper(Sent, SentDumper)
        rows = connection.execute(
            f"""
            SELECT i.value{shown}, (%s::{kind}[])[i.ord]{shown}
            FROM unnest(%s::bigint[], %s::{kind}[]) WITH ORDINALITY AS i (number, value, ord)
            ORDER BY i.number
            """,
            [sent, numbers, sent],
        ).fetchall()
    assert rows == [(value, value) for value in values]


def test_a_column_of_nulls_costs_nothing() -> None:
    """It travels as NULL, however long it is."""
    assert [column([None] * count) for column, *_ in _COLUMNS for count in (1, 2)] == [None] * 12
