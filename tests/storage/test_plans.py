"""Plans: every hot statement finds its rows by their keys, whatever the tables hold.

Rule: the plan is the one of the engine's own session (its settings, its prepared statement, a generic
plan). PROGRESSOR_TEST_PLAN_ROWS says how many rows are many (20,000; a million before a release).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest

from progressor.model import Event, SetTimer
from progressor.storage.connections import Connections
from progressor.storage.items import Import, TaskRef
from progressor.storage.operations import Storage
from progressor.storage.session import Params, Session, numbered
from progressor.storage.statements import STATEMENTS
from tests.support import (
    NS,
    SECOND,
    T0,
    WORKER,
    LossyConnections,
    Tables,
    break_process,
    claim_calls,
    claim_timers,
    events,
    fail,
    hold,
    init,
    removed,
    repair,
    request,
    save,
    set_timer,
    start,
    wait,
)

ROWS = int(os.environ.get("PROGRESSOR_TEST_PLAN_ROWS", "20000"))
Plan = dict[str, Any]

# What touches no table of processes.
OTHER_STATEMENTS = {"begin", "commit", "rollback", "clock", "notify", "health", "namespace_names"} | {
    *("heartbeat", "deregister", "live_workers", "register_namespace"),
}
BIG = {"processes", "tasks", "events", "schedule", "running"}
BY_PROCESS = ("namespace =", "process_id =")
# Scans that are not by process: they are by another key, for a reason.
OTHERS = {
    # The order of waiting, of what may be claimed only.
    ("search_calls", "schedule"): "namespace",
    ("search_timers", "schedule"): "scheduled_time",
    ("backlog", "schedule"): "namespace",
    # A worker's own tasks: as many as it has slots.
    ("search_calls", "running"): "worker_id",
    ("search_timers", "running"): "worker_id",
    ("claimed", "running"): "worker_id",
    ("drop_workers", "running"): "worker_id",
    # The index holds nothing but answers of removed processes.
    ("drop_orphans", "tasks"): "",
    # As many rows as all workers have slots, once per collection.
    ("find_zombies", "running"): "",
}

_MANY: LiteralString = """
INSERT INTO processes (namespace, process_id, status, status_changed_at, created_at, last_event_id)
SELECT %(namespace)s, 'many-' || n, 'running', %(now)s, %(now)s, 1
FROM generate_series(1, %(rows)s) AS n;

INSERT INTO events (namespace, process_id, event_id, task_id, timestamp, payload)
SELECT %(namespace)s, 'many-' || n, 1, n, %(now)s, 'payload' FROM generate_series(1, %(rows)s) AS n;

-- Of four processes one has a call and a blocked timer, one a due timer, two a later one.
INSERT INTO tasks (
    namespace, process_id, task_id, task_type, status, scheduled_time, finished_time, idempotency_key
)
SELECT
    %(namespace)s, 'many-' || n, 10 * n, 'init', 'finished', %(now)s, %(now)s, 'key-' || n
FROM generate_series(1, %(rows)s) AS n
UNION ALL
SELECT
    %(namespace)s, 'many-' || n, 10 * n + 1, 'timeout', 'waiting',
    %(now)s + (n %% 4 - 1) * interval '1 day', NULL, NULL
FROM generate_series(1, %(rows)s) AS n
UNION ALL
SELECT %(namespace)s, 'many-' || n, 10 * n + 2, 'call', 'waiting', %(now)s, NULL, NULL
FROM generate_series(4, %(rows)s, 4) AS n;

INSERT INTO schedule (
    namespace, process_id, task_id, task_type, status, scheduled_time, claimable
)
SELECT
    namespace, process_id, task_id, task_type,
    CASE WHEN task_type = 'timeout' AND task_id %% 40 = 1 THEN 'blocked' ELSE 'waiting' END,
    scheduled_time,
    task_type = 'call' OR task_id %% 40 <> 1
FROM tasks WHERE status = 'waiting';
"""


def fill(tables: Tables) -> None:
    """Many processes, each with an event, a finished task and a timer; every fourth with a call."""
    with psycopg.ClientCursor(tables.connection) as cursor:
        cursor.execute(_MANY, {"namespace": NS, "now": T0, "rows": ROWS})
    tables.execute("SELECT setval('tasks_task_id_seq', %s)", 100 * ROWS)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Params]]:
    """The statements that were sent, each with some parameters of its."""
    seen: dict[str, Params] = {}
    transact = Session.transact

    async def recording(self: Session, statements: Any) -> Any:
        seen.update(statements)
        return await transact(self, statements)

    monkeypatch.setattr(Session, "transact", recording)
    yield seen
    monkeypatch.undo()


async def tour(dsn: str) -> None:
    """Send every statement at least once."""
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=timedelta(seconds=10))
    await storage.execute("register_namespace", name=NS, options="{}", schemas="{}")
    await start(storage, "p1", set_timer(SECOND, events=events(2)))
    await save(storage, await hold(storage, request()), fail())
    await save(storage, await hold(storage, repair()), set_timer(SECOND))
    (timer,) = await claim_timers(storage, now=T0 + SECOND)
    await storage.hand_back([timer.task])
    await break_process(storage, "p2", by_timer=True)
    await storage.simple_repair([repair("p2")], now=T0)
    await start(storage, "p3")
    ref = await wait(storage, request("p3", worker_id=None))
    await storage.capture_task(ref, worker_id=WORKER, lease=1, now=T0)
    await start(storage, "p4")
    step = await hold(storage, request("p4"))
    connections.late = 1
    await save(storage, step, removed())
    await storage.prepare_init([init("p5", worker_id=None)], now=T0)
    await claim_calls(storage)
    long = timedelta(hours=1)
    await storage.collect_zombies(lease_age=SECOND, grace=SECOND, now=T0 + long)
    await storage.remove(NS, "p1")
    item = Import(NS, "p6", "put", events=(Event(b""),), timer=SetTimer(after=SECOND))
    connections.late = 1
    await storage.put(item, now=T0)
    await storage.replies([TaskRef(NS, "p6", 1)])
    await storage.drop_leftovers(lease_age=SECOND, answer_age=SECOND, now=T0)
    await storage.execute("backlog", namespace=NS, most=10, now=T0)
    # A policy that retries, for what the collector then sends.
    await storage.execute("register_namespace", name=NS, options='{"on_zombie": "retry"}', schemas="{}")
    await hold(storage, init("p7"))
    await storage.collect_zombies(lease_age=SECOND, grace=SECOND, now=T0 + long)
    await connections.close()


async def plans(dsn: str, statements: dict[str, Params]) -> dict[str, Plan]:
    """Each statement's plan, as prepared by a session of the engine."""
    connections = Connections(dsn, limit=1)
    found = {}
    async with connections.acquire() as session:
        for name, params in statements.items():
            await session._prepare([(name, params)])
            values = ", ".join(["NULL"] * len(numbered(name)[1]))
            call = f'"{name}" ({values})' if values else f'"{name}"'
            session._pgconn.send_query_params(f"EXPLAIN (FORMAT JSON) EXECUTE {call}".encode(), [])
            ((row,),) = await session._synced(["EXPLAIN"])
            found[name] = row["QUERY PLAN"][0]["Plan"]
    await connections.close()
    return found


def scans(plan: Plan) -> Iterator[Plan]:
    """All nodes that read a table."""
    if plan.get("Relation Name") in BIG and plan["Node Type"] != "ModifyTable":
        yield plan
    for child in plan.get("Plans", ()):
        yield from scans(child)


def faults(found: dict[str, Plan]) -> list[str]:
    """The scans that are not by the key that they should be by."""
    return [
        f"{name}: {scan['Node Type']} of {table} {scan.get('Index Name')} by {condition!r}"
        for name, plan in found.items()
        for scan in scans(plan)
        for table, condition in [(scan["Relation Name"], scan.get("Index Cond", ""))]
        if scan["Node Type"] not in ("Index Scan", "Index Only Scan")
        or not (
            all(part in condition for part in BY_PROCESS)
            or OTHERS.get((name, table), "no other") in condition
        )
    ]


def keys(found: dict[str, Plan]) -> dict[str, list[tuple[str, str]]]:
    """The indexes by which each statement reads each table."""
    return {
        name: sorted((scan["Relation Name"], scan["Index Name"]) for scan in scans(plan))
        for name, plan in found.items()
    }


@pytest.fixture
async def hot(dsn: str, sent: dict[str, Params], tables: Tables) -> dict[str, Params]:
    """Every statement that touches processes, as it is sent; the tables are empty again."""
    await tour(dsn)
    tables.execute("TRUNCATE processes, tasks, running, schedule, events, namespaces")
    return {name: params for name, params in sent.items() if name not in OTHER_STATEMENTS}


async def test_every_statement_is_looked_at(hot: dict[str, Params]) -> None:
    """A statement that is added is looked at here too."""
    assert set(hot) == set(STATEMENTS) - OTHER_STATEMENTS


async def test_on_empty_tables(dsn: str, hot: dict[str, Params]) -> None:
    """A database that was just made, never analyzed, gets plans for what it will become."""
    assert faults(await plans(dsn, hot)) == []


async def test_on_many_rows(dsn: str, hot: dict[str, Params], tables: Tables) -> None:
    """Full tables have plans by keys, and an ANALYZE changes none of them."""
    fill(tables)
    before = await plans(dsn, hot)
    assert faults(before) == []
    tables.execute("ANALYZE")
    after = await plans(dsn, hot)
    assert faults(after) == []
    assert keys(after) == keys(before)


async def test_on_tables_that_were_empty_when_analyzed(
    dsn: str, hot: dict[str, Params], tables: Tables
) -> None:
    """Statistics that say "empty" lead to no other plan, neither before nor after the tables grow."""
    tables.execute("ANALYZE")
    assert faults(await plans(dsn, hot)) == []
    fill(tables)
    assert faults(await plans(dsn, hot)) == []
    tables.execute("VACUUM running")
    assert faults(await plans(dsn, hot)) == []


CLAIMS = {
    "search_calls": {"limit": "10", "lease": "1"},
    "search_timers": {"limit": "10", "lease": "1"},
    "backlog": {"most": "10"},
}


@pytest.mark.parametrize("name", list(CLAIMS))
async def test_cost_of_a_claim(dsn: str, hot: dict[str, Params], tables: Tables, name: str) -> None:
    """A claim reads about as many rows as it takes, however many wait, are blocked, or not due."""
    fill(tables)
    values = {"namespace": f"'{NS}'", "worker_id": "'w'", "now": f"'{T0}'"} | CLAIMS[name]
    connections = Connections(dsn, limit=1)
    async with connections.acquire() as session:
        await session._prepare([(name, hot[name])])
        arguments = ", ".join(values[each] for each in numbered(name)[1])
        sql = f'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE "{name}" ({arguments})'
        session._pgconn.send_query_params(sql.encode(), [])
        ((row,),) = await session._synced(["EXPLAIN"])
    await connections.close()
    read = [
        scan["Actual Loops"] * (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0))
        for scan in scans(row["QUERY PLAN"][0]["Plan"])
    ]
    assert max(read) >= 10
    assert max(read) <= 30, read


# What steps change again and again, by table.
CHANGED = {
    "tasks": {
        *("status", "scheduled_time", "running_time", "finished_time", "response", "error"),
        *("last_retry_interval", "attempts_count", "worker_id", "lease"),
    },
    "processes": {"status", "previous_status", "status_changed_at", "aux_state", "last_event_id"},
    "running": {"task_id", "task_type", "lease", "running_time"},
    "workers": {"seen_at", "free_slots"},
}


@pytest.mark.parametrize("table", list(CHANGED))
def test_steps_change_no_indexed_column(tables: Tables, table: str) -> None:
    """An update of a step never has to write to an index, neither for a key nor for a predicate."""
    indexed = tables.execute(
        """
        SELECT DISTINCT a.attname
        FROM pg_index AS i
        JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
        JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE i.indrelid = %s::regclass AND d.refobjid = i.indrelid
        UNION
        SELECT a.attname
        FROM pg_index AS i
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = %s::regclass
        """,
        table,
        table,
    )
    assert not CHANGED[table] & {row["attname"] for row in indexed}
