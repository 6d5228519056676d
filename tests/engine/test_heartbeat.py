"""The heartbeat: a row that is renewed from a thread, whatever the event loop and the connections do."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import conninfo

from progressor import Engine, Namespace, Process, outages
from progressor.errors import StorageUnavailable
from progressor.loggers import message_of
from progressor.node.witness import Witness
from progressor.storage.heartbeats import Beats
from progressor.storage.operations import Storage
from progressor.storage.postgres import session_setup
from progressor.worker import heartbeat as heartbeat_module
from progressor.worker.heartbeat import Heartbeat, LastMinute
from tests.acceptance.support import until
from tests.support import NS, SECOND, WORKER, Tables, eventually

TICK = timedelta(milliseconds=20)


def beats_of(dsn: str) -> Beats:
    return Beats(dsn, worker_id=WORKER, host="here", namespaces={NS: 60 * SECOND}, lease_age=15 * SECOND)


def heartbeat_of(
    dsn: str,
    slots: Callable[[], dict[str, int]] = dict,
    steps: Callable[[], dict[str, int]] = dict,
    *,
    patience: timedelta = 10 * SECOND,
    borrow: Any = None,
) -> Heartbeat:
    witness = Witness(WORKER, lease_age=15 * SECOND)
    return Heartbeat(
        beats_of(dsn),
        interval=TICK,
        patience=patience,
        free_slots=slots,
        performed=steps,
        witness=witness,
        borrow=borrow,
    )


@pytest.fixture
async def slots() -> dict[str, int]:
    return {NS: 7}


@pytest.fixture
async def heartbeat(dsn: str, slots: dict[str, int]) -> AsyncIterator[Heartbeat]:
    heartbeat = heartbeat_of(dsn, lambda: slots)
    await heartbeat.start()
    yield heartbeat
    await heartbeat.stop(leave=False)


def row(tables: Tables) -> dict[str, object]:
    (found,) = tables.execute("SELECT * FROM workers")
    return found


async def test_a_worker_is_seen_before_it_begins(heartbeat: Heartbeat, tables: Tables) -> None:
    """After start the row stands: host, namespaces and free slots."""
    found = row(tables)
    assert (found["worker_id"], found["host"], found["namespaces"]) == (WORKER, "here", [NS])
    assert found["free_slots"] == {NS: 7}


async def test_it_is_renewed(heartbeat: Heartbeat, tables: Tables, slots: dict[str, int]) -> None:
    """Every interval the row says that the worker lives, and how many slots are free now."""
    first = row(tables)
    slots[NS] = 3
    await eventually(lambda: row(tables)["seen_at"] > first["seen_at"], "renewed")
    await eventually(lambda: row(tables)["free_slots"] == {NS: 3}, "with the slots of now")
    assert row(tables)["started_at"] == first["started_at"]


async def test_it_tells_how_many_steps_were_performed(dsn: str, tables: Tables) -> None:
    """Of the last minute, by namespace: what was performed before its first sign of life is none of it."""
    performed = {NS: 1000}
    heartbeat = heartbeat_of(dsn, steps=lambda: performed)
    await heartbeat.start()
    assert row(tables)["steps"] == {NS: 0}
    performed[NS] += 7
    await eventually(lambda: row(tables)["steps"] == {NS: 7}, "told")
    await heartbeat.stop(leave=False)


def test_the_last_minute() -> None:
    """What is older does not count; where looks are rare, it is the rate between the last two."""
    last_minute = LastMinute()
    told = [last_minute.of({NS: 10 * look}, 5.0 * look)[NS] for look in range(30)]
    assert told == [10 * look for look in range(12)] + [120] * 18
    # Two minutes later, and 50 more: 25 a minute. And a namespace that was not there before.
    told = [last_minute.of({NS: 340, "new": 3}, 265.0)[name] for name in (NS, "new")]
    assert told == [25, 2]
    assert last_minute.of({NS: 340, "new": 3}, 266.0) == {NS: 25, "new": 1}


async def test_a_blocked_loop_does_not_stop_the_heart(heartbeat: Heartbeat, tables: Tables) -> None:
    """The thread beats on while a handler hogs the event loop."""
    first = row(tables)
    deadline = time.monotonic() + 30
    while row(tables)["seen_at"] <= first["seen_at"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # noqa: ASYNC251 - the point of it


async def test_a_lost_connection_is_made_anew(heartbeat: Heartbeat, tables: Tables) -> None:
    """When its connection dies, the next beat makes another one."""
    tables.execute(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'progressor heartbeat'
        """
    )
    first = row(tables)
    await eventually(lambda: row(tables)["seen_at"] > first["seen_at"], "it beats again")


async def test_a_defect_does_not_stop_the_heart(
    heartbeat: Heartbeat, tables: Tables, slots: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a beat meets, the thread goes on, and says it."""
    slots[NS] = object()  # type: ignore[assignment] - no JSON
    await eventually(lambda: "background task failed" in caplog.text, "said")
    slots[NS] = 1
    first = row(tables)
    await eventually(lambda: row(tables)["seen_at"] > first["seen_at"], "it beats again")
    assert {record.part for record in caplog.records if message_of(record) == "background task failed"} == {
        "heartbeat"
    }


async def test_without_a_connection_of_its_own_it_borrows_one(
    dsn: str,
    tables: Tables,
    storage: Storage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its session is ended, and a limit leaves it no other: its row is renewed all the same."""
    caplog.set_level(logging.INFO)
    heartbeat = heartbeat_of(dsn, borrow=storage.beat)
    await heartbeat.start()
    opened = session_setup.connect_blocking

    def no_place(*_: object) -> None:
        raise psycopg.OperationalError("too many connections for role")

    monkeypatch.setattr(session_setup, "connect_blocking", no_place)
    tables.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'progressor heartbeat' AND datname = current_database()"
    )
    await eventually(lambda: "it borrows one" in caplog.text, "said")
    first = row(tables)
    await eventually(lambda: row(tables)["beats"] > first["beats"] + 3, "renewed")
    assert row(tables)["step_timeouts"] == first["step_timeouts"] == [60 * SECOND]
    assert caplog.text.count("borrows") == 1
    assert "PostgreSQL not available" not in caplog.text
    assert heartbeat.silence < 15
    evidence = heartbeat._witness.evidence
    assert evidence is not None
    assert "none to borrow" in evidence.because
    monkeypatch.setattr(session_setup, "connect_blocking", opened)
    monkeypatch.setattr(outages, "_CALM", 0.0)
    await eventually(lambda: "connection of its own again" in caplog.text, "said")
    await heartbeat.stop(leave=True)


async def test_past_a_pooler_if_that_way_is_open(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The direct way is tried first, and again; while it leads nowhere, the heartbeat goes as all else."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(outages, "_CALM", 0.0)
    nowhere = conninfo.make_conninfo(dsn, host="/nowhere")
    pooled = {"worker_id": WORKER, "host": "here", "namespaces": {NS: SECOND}, "lease_age": 15 * SECOND}
    for main, direct in ((nowhere, dsn), (dsn, nowhere)):
        beats = Beats(main, direct_dsn=direct, session_state=False, **pooled)
        first, second = beats.beat({}, {}), beats.beat({}, {})
        assert (second.number, second.is_borrowed) == (first.number + 1, False)
        assert beats._is_direct == (direct == dsn)
        beats._direct, beats._direct_at = (dsn, True), 0.0
        assert beats.beat({}, {}).number == second.number + 1
        assert beats._is_direct
        beats.leave()
        beats.close()
    said = [message_of(record) for record in caplog.records]
    assert said == [
        "heartbeat finds no way past the pooler, it goes through it",
        "heartbeat goes past the pooler again",
    ]
    with pytest.raises(StorageUnavailable):
        Beats(nowhere, direct_dsn=nowhere, **pooled).beat({}, {})


@pytest.mark.parametrize(("stated", "used"), [("2", "2"), ("60", "5"), ("0", "5"), (None, "5")])
def test_how_long_a_host_may_take_to_answer(stated: str | None, used: str) -> None:
    """As long as the DSN says, and no longer than five seconds: one that is dead costs no lease."""
    dsn = conninfo.make_conninfo("postgresql://db1,db2/shop", connect_timeout=stated)
    assert conninfo.conninfo_to_dict(beats_of(dsn)._way[0])["connect_timeout"] == used


async def test_health_tells_of_a_heartbeat_that_is_not_saved(dsn: str, tables: Tables) -> None:
    """PostgreSQL answers and saves all else, and others would take the tasks of this worker soon."""
    lease = {"lease_age": SECOND, "heartbeat_interval": SECOND / 5, "zombie_collector": False}
    async with Engine(dsn, [Namespace(NS)], **lease) as engine:
        assert (await engine.client.health()).ok
        with tables.connection.transaction():
            tables.execute("LOCK TABLE workers IN EXCLUSIVE MODE")
            health = await until(engine.client.health, lambda found: not found.ok)
            assert health.fault == "database"
            assert str(health.detail).startswith("PostgreSQL answers, but the heartbeat of this worker")
        await until(engine.client.health, lambda found: found.ok)


async def test_a_row_that_was_dropped_comes_back(heartbeat: Heartbeat, tables: Tables) -> None:
    """A worker that was taken for dead, and forgotten, says that it lives."""
    tables.execute("DELETE FROM workers")
    await eventually(lambda: tables.execute("SELECT * FROM workers"), "back again")


@pytest.mark.parametrize("leave", [True, False])
async def test_leaving(dsn: str, tables: Tables, leave: bool) -> None:
    """A worker that goes of its own will takes its row along; one with work left lets it age."""
    heartbeat = heartbeat_of(dsn)
    await heartbeat.start()
    await heartbeat.stop(leave=leave)
    assert len(tables.execute("SELECT * FROM workers")) == (0 if leave else 1)


async def test_a_silent_server_does_not_hold_up_who_leaves(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A last beat that nobody answers is left behind; it deregisters as soon as it is answered."""
    monkeypatch.setattr(heartbeat_module, "_LAST_BEAT", 0.01)
    heartbeat = heartbeat_of(dsn)
    await heartbeat.start()
    tables.execute("BEGIN")
    tables.execute("LOCK TABLE workers IN ACCESS EXCLUSIVE MODE")
    held_up = "SELECT pid FROM pg_locks WHERE relation = 'workers'::regclass AND NOT granted"
    await eventually(lambda: tables.execute(held_up), "a beat waits")
    stopping = asyncio.create_task(heartbeat.stop(leave=True))
    await asyncio.wait([stopping], timeout=30)
    tables.execute("ROLLBACK")
    assert stopping.done()
    await stopping
    await eventually(lambda: not tables.execute("SELECT * FROM workers"), "deregistered")


async def test_slow_work_in_the_threads_of_the_loop_does_not_hold_up_who_leaves(
    dsn: str, tables: Tables
) -> None:
    """A handler's `asyncio.to_thread` may fill them all; it deregisters all the same."""
    heartbeat, loop, over = heartbeat_of(dsn), asyncio.get_running_loop(), threading.Event()
    await heartbeat.start()
    with ThreadPoolExecutor(1) as executor:
        loop.set_default_executor(executor)
        slow = loop.run_in_executor(None, over.wait)
        try:
            async with asyncio.timeout(30):
                await heartbeat.stop(leave=True)
            assert not slow.done()
        finally:
            over.set()
            await slow
    assert tables.execute("SELECT * FROM workers") == []


async def test_no_database_at_the_start() -> None:
    """A worker that cannot register within its patience does not start."""
    nowhere = heartbeat_of("postgresql://postgres@127.0.0.1:1/postgres", patience=2 * TICK)
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        await nowhere.start()


async def test_the_first_beats_that_are_lost(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start goes on where a later try gets through."""
    lost, connect = iter(range(3)), session_setup.connect_blocking

    def lossy(dsn: str, name: str) -> psycopg.Connection[Any]:
        if next(lost, None) is not None:
            raise psycopg.OperationalError("the connection was lost")
        return connect(dsn, name)

    monkeypatch.setattr(session_setup, "connect_blocking", lossy)
    heartbeat = heartbeat_of(dsn)
    await heartbeat.start()
    assert (row(tables)["worker_id"], next(lost, None)) == (WORKER, None)
    await heartbeat.stop(leave=True)


async def test_a_first_beat_that_is_denied(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A privilege that is missing is told at once: no try mends it."""
    denied: list[object] = []

    def deny(_beats: Beats, *row: object, **_: object) -> None:
        denied.append(row)
        error = StorageUnavailable("grant the role what it needs")
        error.is_denied = True
        raise error

    monkeypatch.setattr(Beats, "beat", deny)
    with pytest.raises(StorageUnavailable, match="grant"):
        await heartbeat_of(dsn, patience=3600 * SECOND).start()
    assert len(denied) == 1


async def test_a_start_that_is_cancelled_leaves_nothing(dsn: str, tables: Tables) -> None:
    """Neither its row nor its connection nor its thread, however far the first beat was."""
    heartbeat = heartbeat_of(dsn)
    with tables.connection.transaction():
        tables.execute("LOCK TABLE workers")
        starting = asyncio.create_task(heartbeat.start())
        await eventually(tables.waiting, "it beats")
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await heartbeat.stop(leave=True)
    assert tables.execute("SELECT * FROM workers") == []
    await eventually(lambda: not connections_of(tables), "its connection has ended")


async def test_a_start_that_fails_leaves_nothing(dsn: str, tables: Tables) -> None:
    """Whatever it was that failed."""
    heartbeat = heartbeat_of(dsn, lambda: {NS: object()})  # type: ignore[dict-item] - no JSON
    with pytest.raises(TypeError):
        await heartbeat.start()
    await heartbeat.stop(leave=False)
    assert tables.execute("SELECT * FROM workers") == []
    await eventually(lambda: not connections_of(tables), "its connection has ended")


def connections_of(tables: Tables) -> list[dict[str, object]]:
    return tables.execute(
        "SELECT pid FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'progressor heartbeat'"
    )


async def test_an_engine_whose_stop_is_cancelled_beats_no_more(dsn: str, tables: Tables) -> None:
    """One that beats on would be taken for a worker that runs steps."""
    ns, gate, begun = Namespace(NS), asyncio.Event(), asyncio.Event()

    @ns.init
    async def begin(process: Process[Any]) -> None:
        begun.set()
        await gate.wait()

    engine = Engine(dsn, [ns], heartbeat_interval=timedelta(milliseconds=20))
    await engine.__aenter__()
    starting = asyncio.create_task(engine.client.start(NS, "p1"))
    await begun.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await engine.stop()
    assert not [each for each in threading.enumerate() if each.name == "progressor heartbeat"]
    # Its row ages: what it has begun is left to the collectors.
    assert len(tables.execute("SELECT * FROM workers")) == 1
    gate.set()
    await asyncio.wait([starting])
