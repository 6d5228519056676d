"""The pages of a search by timer read what they hand out, not all that there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from progressor.storage.queries import searches
from progressor.storage.queries.criteria import Wanted
from progressor.storage.queries.searches import Search
from tests.conftest import Databases
from tests.storage.test_plans import break_some, fill
from tests.support import NS, Tables

LIMIT = 10
# Timers are due, those of every hundredth process are held, every tenth process has none.
_BREAK: LiteralString = """
UPDATE schedule SET scheduled_time = now() - interval '1 day' + task_id * interval '1 microsecond'
WHERE claimable;
UPDATE processes SET status = 'error', detail = 'no' WHERE process_no % 100 = 1;
UPDATE schedule SET claimable = FALSE WHERE process_no % 100 = 1;
DELETE FROM schedule WHERE process_no % 10 = 0;
"""


def read(plan: dict[str, Any]) -> Iterator[int]:
    """How many rows each node took from a table or an index."""
    if "Relation Name" in plan:
        passed_by = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        yield round((plan["Actual Rows"] + passed_by) * plan["Actual Loops"])
    for child in plan.get("Plans", []):
        yield from read(child)


@pytest.fixture(scope="module")
def filled(databases: Databases, template: str) -> Iterator[Tables]:
    """Many processes, all of one namespace: for all tests that only look at them."""
    name = databases.make(template)
    with psycopg.connect(databases.dsn(name), autocommit=True) as connection:
        tables = Tables(connection)
        fill(tables)
        for statement in _BREAK.split(";"):
            if statement.strip():
                connection.execute(statement.encode())
        tables.execute("ANALYZE")
        connection.execute("SET default_transaction_read_only = on")
        yield tables
    databases.drop(name)


@pytest.mark.parametrize("timer", ["overdue", "held", "none", "", "dunning", None])
@pytest.mark.parametrize("namespace", [NS, None])
@pytest.mark.parametrize("namespaces", [None, (NS, "other")])
def test_a_page_reads_what_it_hands_out(
    filled: Tables,
    monkeypatch: pytest.MonkeyPatch,
    timer: str | None,
    namespace: str | None,
    namespaces: tuple[str, ...] | None,
) -> None:
    """Of a search by timer, with those that it looks at where no index says what is not there."""
    monkeypatch.setattr(searches, "MOST_LOOKED_AT", 200)
    search, cursor = Search(Wanted(namespace=namespace, namespaces=namespaces, timer=timer)), None
    # No process has a timer of this name: its page is empty, and says where to go on.
    hits = 0 if timer == "dunning" else LIMIT
    for _ in range(3):
        compiled = search.statement(LIMIT, cursor).compile(
            dialect=PGDialect_psycopg(), compile_kwargs={"literal_binds": True}
        )
        (plan,) = filled.connection.execute(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {compiled}".encode()
        ).fetchone()  # type: ignore[misc]
        assert sum(read(plan[0]["Plan"])) < 900, plan
        rows = filled.execute(str(compiled))  # type: ignore[arg-type]
        items, cursor = search.page(rows, LIMIT)
        assert len(items) == hits
        assert cursor is not None


@pytest.mark.parametrize("tenths", [1, 9])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
@pytest.mark.parametrize("namespaces", [None, (NS, "other")])
def test_a_page_of_the_broken_ones(
    tables: Tables, namespaces: tuple[str, ...] | None, analyzed: bool, tenths: int
) -> None:
    """It reads no more than it hands out, be few broken or most, also before the first ANALYZE."""
    for table in ("processes", "tasks", "schedule"):
        # It may come by itself.
        tables.connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
    fill(tables)
    break_some(tables, tenths)
    if analyzed:
        tables.execute("ANALYZE")
    compiled = (
        Search(Wanted(namespace=NS, namespaces=namespaces, status="error"))
        .statement(LIMIT, None)
        .compile(dialect=PGDialect_psycopg(), compile_kwargs={"literal_binds": True})
    )
    (plan,) = tables.connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {compiled}".encode()).fetchone()  # type: ignore[misc]
    assert sum(read(plan[0]["Plan"])) < 100, plan
