"""The doctor: finds each kind of damage by the invariant that it breaks, and nothing in what is whole.

Rule: every invariant has a damage here; the damage is done behind the engine's back.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest

from progressor.doctor import examine
from progressor.errors import SchemaMismatch, StorageUnavailable
from progressor.model import SetTimer
from progressor.storage.checks import CHECKS
from progressor.storage.connections import Connections
from progressor.storage.items import Import
from progressor.storage.operations import Storage
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    break_process,
    events,
    hold,
    init,
    removed,
    repair,
    request,
    save,
    set_timer,
    start,
    unlock,
    wait,
)

Damage = tuple[tuple[LiteralString, ...], set[str]]

DAMAGES: dict[str, Damage] = {
    "two run": (
        (
            "ALTER TABLE running DROP CONSTRAINT running_pkey",
            "INSERT INTO running SELECT * FROM running WHERE process_id = 'busy'",
        ),
        {"running_once", "schema_guards"},
    ),
    "a running row without its task": (
        ("DELETE FROM tasks WHERE process_id = 'busy' AND status = 'running'",),
        {"running_has_its_task"},
    ),
    "another lease": (
        ("UPDATE running SET lease = lease + 1 WHERE process_id = 'busy'",),
        {"running_has_its_task"},
    ),
    "a schedule row without its task": (
        ("DELETE FROM tasks WHERE process_id = 'idle' AND status = 'waiting'",),
        {"schedule_has_its_task"},
    ),
    "another time": (
        ("UPDATE schedule SET scheduled_time = now() WHERE process_id = 'idle'",),
        {"schedule_has_its_task"},
    ),
    "a timer that runs and waits": (
        (
            "UPDATE running SET task_type = 'timeout' WHERE process_id = 'busy'",
            (
                "UPDATE tasks SET task_type = 'timeout', idempotency_key = NULL "
                "WHERE process_id = 'busy' AND status = 'running'"
            ),
        ),
        {"schedule_one_timer"},
    ),
    "nothing to claim": (
        ("UPDATE schedule SET claimable = FALSE WHERE process_id = 'mailbox'",),
        {"schedule_claimable"},
    ),
    "a later call to claim": (
        (
            (
                "UPDATE schedule SET claimable = NOT claimable "
                "WHERE process_id = 'mailbox' AND task_type = 'call'"
            ),
        ),
        {"schedule_claimable"},
    ),
    "a timer blocked by nothing": (
        ("UPDATE schedule SET status = 'blocked', claimable = FALSE WHERE process_id = 'idle'",),
        {"schedule_blocked", "schedule_claimable"},
    ),
    "a timer that nothing blocks": (
        ("UPDATE schedule SET status = 'waiting' WHERE process_id = 'mailbox'",),
        {"schedule_blocked"},
    ),
    "a call overtaken": (
        (
            "UPDATE schedule SET task_id = 0 WHERE process_id = 'busy' AND task_type = 'call'",
            (
                "UPDATE tasks SET task_id = 0 "
                "WHERE process_id = 'busy' AND task_type = 'call' AND status = 'waiting'"
            ),
        ),
        {"mailbox_order"},
    ),
    "a call on a broken process": (
        (
            (
                "UPDATE processes SET status = 'error', detail = 'no', previous_status = NULL "
                "WHERE process_id = 'mailbox'"
            ),
        ),
        {"broken_waits_for_repair"},
    ),
    "a repair on a whole process": (
        (
            (
                "UPDATE processes SET status = 'running', detail = NULL, corrupted_by = NULL "
                "WHERE process_id = 'repaired'"
            ),
        ),
        {"broken_waits_for_repair"},
    ),
    "an init without its task": (
        ("UPDATE processes SET status = 'init' WHERE process_id = 'idle'",),
        {"init_comes_first"},
    ),
    "an init after all": (
        ("UPDATE processes SET status = 'running' WHERE process_id = 'new'",),
        {"init_comes_first"},
    ),
    "broken by nothing": (
        ("UPDATE processes SET corrupted_by = NULL WHERE process_id = 'broken'",),
        {"broken_by_a_task"},
    ),
    "broken by a task that did not fail": (
        (
            (
                "UPDATE processes SET corrupted_by = (SELECT min(task_id) FROM tasks "
                "WHERE process_id = 'broken') WHERE process_id = 'broken'"
            ),
        ),
        {"broken_by_a_task"},
    ),
    "whole, with a detail": (
        (
            "ALTER TABLE processes DROP CONSTRAINT processes_detail_check",
            "UPDATE processes SET detail = 'no' WHERE process_id = 'idle'",
        ),
        {"broken_by_a_task"},
    ),
    "a waiting task that nobody will see": (
        ("DELETE FROM schedule WHERE process_id = 'idle'",),
        {"tasks_live_somewhere"},
    ),
    "a running task that nobody runs": (
        ("DELETE FROM running WHERE process_id = 'alone'",),
        {"tasks_live_somewhere"},
    ),
    "cancelled without a reason": (
        (
            (
                "UPDATE tasks SET status = 'cancelled', finished_time = now() "
                "WHERE process_id = 'idle' AND status = 'finished'"
            ),
        ),
        {"tasks_end_with_an_answer", "events_of_a_task"},
    ),
    "a request without a key": (
        ("UPDATE tasks SET idempotency_key = NULL WHERE process_id = 'alone'",),
        {"tasks_end_with_an_answer"},
    ),
    "final without a time": (
        (
            "ALTER TABLE tasks DROP CONSTRAINT tasks_finished_time_check",
            "UPDATE tasks SET finished_time = NULL WHERE process_id = 'broken'",
        ),
        {"tasks_end_with_an_answer", "schema_guards"},
    ),
    "a process that is gone": (
        ("DELETE FROM processes WHERE process_id = 'broken'",),
        {"tasks_of_a_process"},
    ),
    "an answer of a removed process that is none": (
        (
            (
                "UPDATE tasks SET status = 'running', finished_time = NULL, response = NULL "
                "WHERE orphaned AND task_type = 'call'"
            ),
            (
                "INSERT INTO running SELECT namespace, process_id, task_id, task_type, worker_id, lease, "
                "running_time FROM tasks WHERE orphaned AND task_type = 'call'"
            ),
        ),
        {"tasks_of_a_process", "running_has_its_task"},
    ),
    "a gap": (
        ("DELETE FROM events WHERE process_id = 'idle' AND event_id = 1",),
        {"events_gapless"},
    ),
    "another last_event_id": (
        ("UPDATE processes SET last_event_id = 7 WHERE process_id = 'idle'",),
        {"events_gapless"},
    ),
    "an event of no task": (
        ("UPDATE events SET task_id = 0 WHERE process_id = 'idle'",),
        {"events_of_a_task"},
    ),
    "no key": (
        ("DROP INDEX schedule_one_timer",),
        {"schema_guards"},
    ),
}


@pytest.fixture
async def scene(dsn: str) -> str:
    """A database with processes in all that can become of them, whole."""
    connections = Connections(dsn, limit=2)
    storage = Storage(connections, patience=timedelta(seconds=10))
    await start(storage, "idle", set_timer(SECOND, events=events(2)))
    await start(storage, "mailbox", set_timer(SECOND))
    await wait(storage, request("mailbox", worker_id=None))
    await wait(storage, request("mailbox", worker_id=None))
    await start(storage, "busy", set_timer(SECOND))
    await hold(storage, request("busy"))
    await wait(storage, request("busy"))
    await start(storage, "alone")
    await hold(storage, request("alone"))
    await hold(storage, init("new"))
    await break_process(storage, "broken", by_timer=True)
    await break_process(storage, "repaired")
    await hold(storage, repair("repaired"))
    await start(storage, "gone")
    await save(storage, await hold(storage, request("gone")), removed())
    await storage.put(Import(NS, "put", "put-1", events=events(3), timer=SetTimer(after=SECOND)), now=T0)
    await storage.put(Import(NS, "put broken", "put-2", status="error", detail="imported"), now=T0)
    await start(storage, "elsewhere", unlock(events=events(1)), namespace="shop.other")
    await connections.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        Tables(connection).set_namespace()
    return dsn


def broken(dsn: str, **options: object) -> set[str]:
    """The names of the invariants that do not hold."""
    report = examine(dsn, **options)  # type: ignore[arg-type]
    return {each.name for each in report.invariants if not each.holds}


def test_whole(scene: str) -> None:
    """Nothing is found where nothing is damaged."""
    report = examine(scene)
    assert report.is_clean, report
    assert [each.name for each in report.invariants] == [check.name for check in CHECKS]


@pytest.mark.parametrize("name", DAMAGES)
def test_damage(scene: str, tables: Tables, name: str) -> None:
    """Each damage is found by the invariants that it breaks, and by no other."""
    statements, expected = DAMAGES[name]
    for statement in statements:
        tables.execute(statement)
    assert broken(scene) == expected


def test_every_invariant_has_a_damage() -> None:
    """No invariant is there that nothing was ever found by."""
    by_time = {"running_of_the_living", "running_in_time"}
    found = {name for _, names in DAMAGES.values() for name in names}
    assert found | by_time == {check.name for check in CHECKS}


def test_findings_name_the_place(scene: str, tables: Tables) -> None:
    """A finding says where it is, and what was found; there are at most as many as were asked for."""
    tables.execute("UPDATE schedule SET claimable = FALSE")
    (found,) = [each for each in examine(scene, most=1).invariants if not each.holds]
    (finding,) = found.findings
    assert found.more
    assert (finding.namespace, finding.found) == (NS, "it is the next, but cannot be claimed")
    assert finding.process_id
    assert finding.task_id


def test_one_namespace(scene: str, tables: Tables) -> None:
    """Another namespace's damage is left out, or alone in it."""
    tables.execute("DELETE FROM events WHERE namespace = 'shop.other'")
    assert broken(scene, namespace="shop.other") == {"events_gapless"}
    assert broken(scene, namespace=NS) == set()


def test_quick(scene: str, tables: Tables) -> None:
    """What needs all events is left out of a quick look."""
    tables.execute("DELETE FROM events")
    assert broken(scene, quick=True) == set()
    tables.execute("DELETE FROM tasks")
    assert broken(scene, quick=True) == {"running_has_its_task", "schedule_has_its_task"}


def test_dead_worker(scene: str, tables: Tables) -> None:
    """A task of a dead worker is a finding once a collector had its time, not before."""
    late = T0 + 35 * SECOND
    times = {"lease_age": 15 * SECOND, "slack": 20 * SECOND}
    assert broken(scene, now=late, **times) == set()
    assert broken(scene, now=late + SECOND, **times) == {"running_of_the_living"}
    tables.set_worker(seen_at=T0 + 2 * SECOND)
    assert broken(scene, now=late + SECOND, **times) == set()


def test_endless_step(scene: str, tables: Tables) -> None:
    """A task that outlived its step_timeout and the grace is one too, however alive its worker is."""
    late = T0 + 60 * SECOND + 10 * SECOND + 20 * SECOND
    times = {"grace": 10 * SECOND, "slack": 20 * SECOND}
    tables.set_worker(seen_at=late)
    assert broken(scene, now=late, **times) == set()
    assert broken(scene, now=late + SECOND, **times) == {"running_in_time"}


async def test_one_snapshot(scene: str) -> None:
    """What commits while the doctor looks is not seen by half: all checks see one moment."""
    connections = Connections(scene, limit=1)
    storage = Storage(connections, patience=timedelta(seconds=10))
    stop = asyncio.Event()

    async def work() -> None:
        place = 0
        while not stop.is_set():
            place += 1
            step = await hold(storage, init(f"w{place}"))
            await save(storage, step, set_timer(SECOND, events=events(3)))
            await storage.remove(NS, f"w{place - 1}")

    working = asyncio.create_task(work())
    reports = [await asyncio.to_thread(examine, scene) for _ in range(5)]
    stop.set()
    await working
    await connections.close()
    assert [each for report in reports for each in report.invariants if not each.holds] == []


def test_changes_nothing(scene: str, tables: Tables) -> None:
    """The transaction is read-only."""
    before = tables.everything()
    examine(scene)
    assert tables.everything() == before


def test_without_tables(empty_dsn: str) -> None:
    """A database without the tables is no finding but an error."""
    with pytest.raises(SchemaMismatch):
        examine(empty_dsn)


def test_without_a_database() -> None:
    """Neither is a database that cannot be reached."""
    with pytest.raises(StorageUnavailable):
        examine("postgresql://nobody@127.0.0.1:1/nothing")
