"""Reads: a page of a search is bounded in bytes; what PostgreSQL refuses is told in words of the API."""

from __future__ import annotations

import asyncio
import gc
import traceback
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from progressor.errors import ProgressorError, SchemaMismatch, StorageUnavailable
from progressor.handlers.running.step_task import StepTask
from progressor.inputs import HistoryRange
from progressor.model import Event, Life
from progressor.storage.operations import Storage
from progressor.storage.queries import connections, reads as queries, traces
from progressor.storage.queries.criteria import TaskRow, TraceRange, Wanted
from progressor.storage.queries.reads import Reads, removal_statement, task_statement
from tests.support import NS, SECOND, Tables, hold, request, resume, save, start


@pytest.fixture
async def reads(dsn: str) -> AsyncIterator[Reads]:
    reads = Reads(dsn, patience=SECOND)
    yield reads
    await reads.close()


@pytest.mark.parametrize("timer", [None, "none"])
async def test_a_page_ends_where_states_have_no_room(
    storage: Storage, reads: Reads, timer: str | None
) -> None:
    """A page with large states is shorter than its limit, and has a cursor that goes on behind it."""
    wanted = Wanted(timer=timer, room=150_000)
    for place, size in enumerate([100_000, 100_000, 10, 10, 200_000, 10]):
        await start(storage, f"p{place}", resume(aux_state=b"x" * size))
    pages, cursor = [], ""
    while cursor is not None:
        page, cursor = await reads.search(wanted, limit=4, cursor=cursor or None)
        pages.append([each.process_id for each in page])
    assert pages == [["p0", "p1"], ["p2", "p3", "p4"], ["p5"]]
    page, cursor = await reads.search(wanted, limit=1, cursor=None)
    assert (len(page), cursor is None) == (1, False)
    without, cursor = await reads.search(replace(wanted, states=False), limit=6, cursor=None)
    assert ([each.aux_state for each in without], cursor) == ([None] * 6, None)


@pytest.mark.parametrize(
    "wanted", [HistoryRange(), HistoryRange(0, 7, "backward"), HistoryRange(2, 5, "forward")]
)
async def test_a_history_is_read_in_parts(
    storage: Storage, reads: Reads, monkeypatch: pytest.MonkeyPatch, wanted: HistoryRange
) -> None:
    """No part asks for more events than a few, which PostgreSQL would read all to see what has room."""
    monkeypatch.setattr(queries, "_EVENTS_AT_ONCE", 3)
    await start(storage, "p1", resume(events=(Event(b"an event"),) * 10))
    asked, read = list[int | None](), reads.events

    async def counting(life: Life, part: HistoryRange, **bounds: Any) -> tuple[Event, ...]:
        asked.append(part.limit)
        return await read(life, part, **bounds)

    monkeypatch.setattr(reads, "events", counting)
    process = await reads.process(NS, "p1")
    assert process is not None
    found = [event.event_id for event in await reads.history(process.life, wanted, last=10)]
    first = wanted.offset + 1
    whole = [*range(first, 11)] if wanted.direction == "forward" else [*range(10, 0, -1)]
    assert found == whole[: wanted.limit]
    assert len(asked) > 1
    assert all(limit is not None and limit <= 3 for limit in asked)


@pytest.mark.parametrize("of", [{}, {"last": 100}, {"limit": 7}, {"limit": 3}])
async def test_a_trace_is_read_in_parts(
    storage: Storage, reads: Reads, monkeypatch: pytest.MonkeyPatch, of: dict[str, Any]
) -> None:
    """A part has no more tasks than so many, and says that there are others."""
    monkeypatch.setattr(traces, "_TASKS_AT_ONCE", 3)
    await start(storage, "p1")
    for _ in range(7):
        await save(storage, await hold(storage, request("p1")), resume(events=(Event(b"an event"),)))
    (whole, _), part = await reads.trace(TraceRange(NS, "p1", limit=3), room=1), list[TaskRow]()
    rest, has_more, found = TraceRange(NS, "p1", **of), True, list[TaskRow]()
    while has_more:
        part, has_more = await reads.trace(rest, room=100_000)
        assert len(part) <= 3
        found = part + found if rest.last else found + part
        if rest.last:
            rest = rest._replace(before=found[0].task_id, last=rest.last - len(part))
        else:
            rest = rest._replace(after=found[-1].task_id, limit=rest.limit and rest.limit - len(part))
    assert [len(each.events) for each in found] == ([0] + [1] * 7)[: of.get("limit")]
    assert found[0] == whole[0]


SECRET = " ".join(["a", "secret"])
READS: list[Callable[[Reads], Awaitable[Any]]] = [
    lambda reads: reads.trace(TraceRange(NS, SECRET), room=1),
    lambda reads: reads.task(NS, SECRET, 1),
    lambda reads: reads.process(NS, SECRET),
    lambda reads: reads.search(Wanted(metadata={"a": SECRET}), limit=1, cursor=None),
    lambda reads: reads.search(Wanted(metadata={"a": SECRET}, timer="none"), limit=1, cursor=None),
    lambda reads: reads.search(Wanted(metadata={"a": SECRET}, timer="overdue"), limit=1, cursor=None),
    lambda reads: reads.events(Life(1), HistoryRange(), last=1),
]


@pytest.mark.parametrize(
    "read", READS, ids=["trace", "task", "process", "search", "none", "overdue", "events"]
)
async def test_a_missing_table(
    reads: Reads, tables: Tables, read: Callable[[Reads], Awaitable[Any]]
) -> None:
    """It is an error of the tree that says what to run, without SQL and values, in its causes too."""
    tables.execute("DROP TABLE processes, tasks, events CASCADE")
    with pytest.raises(ProgressorError) as caught:
        await read(reads)
    assert isinstance(caught.value, SchemaMismatch)
    assert "progressor migrate" in str(caught.value)
    said = "".join(traceback.format_exception(caught.value))
    assert "[SQL" not in said
    assert SECRET not in said


async def test_a_wait_for_a_connection_is_no_stop(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that reads a history while all connections are in use is told so, and goes on."""
    monkeypatch.setattr(connections, "_MOST_CONNECTIONS", 1)
    reads = Reads(dsn, patience=timedelta(seconds=0.1))
    async with reads._connections.reading(None):

        async def step() -> None:
            with pytest.raises(StorageUnavailable, match="all connections of this client were in use"):
                await reads.process("ns", "p")

        task = StepTask(step())
        await task
        assert not task.is_stopped
        leaving = asyncio.create_task(reads.process("ns", "p"))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
    # Neither has kept the place.
    assert await reads.process("ns", "p") is None
    await reads.close()


async def test_a_read_that_ends_after_the_close_leaves_no_connection_open(dsn: str) -> None:
    """What is in use when everything is closed is closed by its user."""
    reads = Reads(dsn, patience=SECOND)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def read(connection: AsyncConnection) -> int:
        begun.set()
        await go_on.wait()
        return (await connection.execute(text("SELECT 7"))).scalar_one()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        reading = asyncio.create_task(reads._read(read))
        await begun.wait()
        await reads.close()
        go_on.set()
        assert await reading == 7
        gc.collect()
    assert [str(each.message) for each in warned] == []


async def test_an_answer_is_found_by_keys(storage: Storage, reads: Reads, tables: Tables) -> None:
    """Of a process or of a life of it that has ended, however many others there are."""
    await start(storage, "p")
    tables.execute(
        "INSERT INTO processes (namespace_no, process_id, status, status_changed_at, created_at) "
        "SELECT p.namespace_no, 'other' || n, 'running', now(), now() "
        "FROM processes AS p, generate_series(1, 20000) AS n"
    )
    tables.execute(
        "INSERT INTO tasks (process_no, task_type, status, scheduled_time, finished_time, idempotency_key) "
        "SELECT process_no, 'init', 'finished', now(), now(), 'k' FROM processes WHERE process_id <> 'p'"
    )
    tables.execute(
        "INSERT INTO removed_processes (process_no, kept_until, namespace, process_id) "
        "SELECT n, now(), %s, 'gone' || n FROM generate_series(1000000, 1020000) AS n",
        NS,
    )
    tables.execute(
        "INSERT INTO audit (act_id, acted_at, verb, namespace, process_id, actor, way, role) "
        "SELECT n, now(), 'remove', %s, 'gone' || n, 'a', 'cli', 'r' FROM generate_series(1, 20000) AS n",
        NS,
    )
    tables.execute("SELECT setval('processes_process_no_seq', 1020000)")
    for table in ("processes", "tasks", "removed_processes", "audit"):
        tables.execute(f"ANALYZE {table}")
    for look in (task_statement(NS, "p", 1), removal_statement(NS, "p")):
        statement = look.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})
        plan = "\n".join(row["QUERY PLAN"] for row in tables.execute(f"EXPLAIN {statement}"))
        assert "Seq Scan" not in plan.replace("Seq Scan on namespaces", ""), plan
