"""Lives of one name: however many have ended, their answers are known for a day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from progressor.storage.operations import Storage
from progressor.storage.queries.reads import Reads
from progressor.storage.values import Duplicate, NotPrepared, Reason
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    check_invariants,
    events,
    hold,
    init,
    prepare,
    removed,
    repair,
    request,
    save,
    start,
)

LIVES = 40
DAY = timedelta(days=1)


@pytest.fixture
async def reads(dsn: str) -> AsyncIterator[Reads]:
    made = Reads(dsn, patience=timedelta(seconds=10))
    yield made
    await made.close()


async def lives(storage: Storage, process_id: str = "p1", count: int = LIVES) -> list[int]:
    """So many lives of a name, each ended by a call; the ids of these calls."""
    ids = []
    for place in range(count):
        await start(storage, process_id, key=f"start-{process_id}-{place}")
        step = await hold(storage, request(process_id, key=f"end-{process_id}-{place}"))
        await save(storage, step, removed())
        ids.append(step.task.task_id)
    return ids


async def test_the_answers_of_all_are_known(storage: Storage, tables: Tables, dsn: str) -> None:
    """A start asked again begins no life, a request asked again has its answer, of whichever life."""
    ended = await lives(storage)
    await lives(storage, "p2", 2)
    for place in range(LIVES):
        (again,) = await storage.prepare_init([init(key=f"start-p1-{place}")], now=T0)
        assert isinstance(again, Duplicate), place
        (again,) = await prepare(storage, request(key=f"end-p1-{place}"))
        assert isinstance(again, Duplicate)
        assert (again.task.task_id, again.answer.response) == (ended[place], b"answer")
        other = request(key=f"end-p1-{place}", request_hash=b"other")
        assert await prepare(storage, other) == [NotPrepared(Reason.CONFLICT)]
        (repaired,) = await storage.simple_repair([repair(key=f"end-p1-{place}")], now=T0)
        assert isinstance(repaired, Duplicate)
    # What was asked of another name is new.
    await start(storage, "p2", key="start-p1-30")
    assert len([row for row in tables.everything()["removed"] if not row["by_key"]]) == 16 + 2
    check_invariants(dsn)


async def test_a_task_of_any_of_them_is_found(storage: Storage, reads: Reads) -> None:
    """By its name and its number; under another name it is not."""
    for place, task_id in enumerate(await lives(storage)):
        found = await reads.task(NS, "p1", task_id)
        assert found is not None
        assert (found.idempotency_key, found.response) == (f"end-p1-{place}", b"answer")
        assert await reads.task(NS, "p2", task_id) is None


async def test_all_are_forgotten_after_a_day(storage: Storage, tables: Tables) -> None:
    """Nothing is left of them, and their keys are new again."""
    await lives(storage)
    await storage.drop_leftovers(now=T0 + DAY)
    assert len(tables.everything()["removed"]) == LIVES
    while await storage.drop_leftovers(limit=10, now=T0 + DAY + SECOND):
        pass
    assert {name for name, rows in tables.everything().items() if rows} == set()
    await start(storage, key="start-p1-30")


async def test_lives_with_many_tasks_are_looked_at(storage: Storage, tables: Tables, dsn: str) -> None:
    """The end of one takes no longer for them; of one with large or many events the keys are listed."""
    await lives(storage)
    for key, table in (("many", "tasks"), ("large", "events")):
        decision = None if table == "tasks" else removed(events=events(1001))
        step = await hold(storage, init(key=key))
        if table == "tasks":
            tables.execute(
                """
                INSERT INTO tasks (
                    process_no, task_type, status, scheduled_time, finished_time, idempotency_key,
                    request_hash
                )
                SELECT process_no, 'call', 'finished', %s, %s, 'key-' || n, 'hash'
                FROM processes, generate_series(1, 1001) AS n
                """,
                T0,
                T0,
            )
        await save(storage, step, decision or removed())
    by_key = [row["by_key"] for row in tables.everything()["removed"]]
    assert by_key[-2:] == [False, True]
    for key in ("many", "large"):
        (again,) = await storage.prepare_init([init(key=key)], now=T0)
        assert isinstance(again, Duplicate)
    (again,) = await prepare(storage, request(key="key-700"))
    assert isinstance(again, Duplicate)
    check_invariants(dsn)
