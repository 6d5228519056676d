"""Namespaces are paused, listed and retired; what has a heartbeat is listed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from progressor.errors import StorageUnavailable
from progressor.model import Decision, Disposition, Reply, shown_id
from progressor.monitoring import KnownNamespace
from progressor.storage.admin.namespaces import Left
from progressor.storage.operations import Storage
from progressor.storage.statements import STATEMENTS
from progressor.storage.values import NotPrepared, Reason
from tests.support import (
    NS,
    SECOND,
    T0,
    WORKER,
    LossyConnections,
    Tables,
    break_process,
    claim_timers,
    eventually,
    hold,
    init,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

AGE = timedelta(seconds=15)
# What a request that is run at once and a step behind another one are written by, after a statement of the
# same transaction has asked.
_ASKED_BEFORE = {"fused_run", "fused_save", "fused_save_timeless"}


def register(tables: Tables, name: str = NS) -> None:
    """As a worker did that has left long ago."""
    tables.set_namespace(name)
    tables.execute("UPDATE namespaces SET updated_at = now() - interval '1 hour' WHERE name = %s", name)


def test_whatever_runs_a_task_asks_for_the_pause() -> None:
    """Each statement that writes to running looks whether the namespace is paused."""
    puts = {
        name
        for name, sql in STATEMENTS.items()
        if "INSERT INTO progressor.running" in sql or "UPDATE progressor.running" in sql
    }
    assert "search_calls" in puts
    assert {name for name in puts if "paused" not in STATEMENTS[name]} <= _ASKED_BEFORE


async def test_pausing_and_resuming(storage: Storage, tables: Tables) -> None:
    """It is said of a namespace that is known, as often as one likes."""
    tables.set_namespace()
    for paused in (True, True, False, False):
        assert await storage.set_paused(NS, paused)
        (known,) = await storage.known_namespaces()
        assert known.paused is paused
        assert (await storage.backlog(NS, most=1)).paused is paused
        assert (await storage.health(AGE)).paused == ((NS,) if paused else ())
    assert not await storage.set_paused("nobody.knows", True)


async def test_why_it_is_paused(storage: Storage, tables: Tables) -> None:
    """The last reason is kept as long as the pause, also when a worker registers."""
    tables.set_namespace()
    for reason in ("the provider is down", "it is still down", None, "again"):
        await storage.set_paused(NS, True, reason)
        await storage.register_namespace(NS, options={}, schemas={})
        (known,) = await storage.known_namespaces()
        (status,) = await storage.status()
        assert known.pause_reason == status.pause_reason == reason
    await storage.set_paused(NS, False)
    (known,) = await storage.known_namespaces()
    assert known.pause_reason is None


async def test_a_namespace_that_is_published_again_is_that_of_the_newest_worker(
    storage: Storage, tables: Tables
) -> None:
    """Whichever worker comes first after a fail-over, and whatever that has lost."""

    async def publish(concurrency: int, since: datetime | None = None) -> datetime | None:
        options = {"concurrency": concurrency}
        return await storage.register_namespace("till", options=options, schemas={}, since=since)

    async def published() -> int:
        found = await storage.namespace("till")
        assert found is not None
        return found.options["concurrency"]

    older, newer = await publish(1), await publish(2)
    assert older is not None
    # Nothing is lost.
    assert (await publish(1, older), await published()) == (None, 2)
    assert (await publish(2, newer), await published()) == (None, 2)
    # The newer one is lost.
    tables.execute("UPDATE namespaces SET updated_at = %s, options = '{\"concurrency\": 1}'", older)
    assert (await publish(1, older), await publish(2, newer), await published()) == (None, newer, 2)
    # Both are, and the older worker comes first.
    tables.execute("DELETE FROM namespaces")
    assert (await publish(1, older), await publish(2, newer)) == (older, newer)
    assert (await publish(1, older), await published()) == (None, 2)


async def test_known_namespaces(storage: Storage, tables: Tables) -> None:
    """Each with its live workers, and their slots as they said last; by name. What is retired is none."""
    now = datetime.now(UTC)
    tables.execute("DELETE FROM namespaces")
    register(tables, "b.second")
    await storage.register_namespace("a.first", options={"concurrency": 10}, schemas={})
    served = {"a.first": SECOND, "retired": SECOND}
    for worker_id, seen_at in ((1, now), (2, now), (3, now - timedelta(hours=1))):
        tables.set_worker(worker_id, seen_at=seen_at, step_timeouts=served, lease_age=AGE)
    tables.execute("UPDATE workers SET free_slots = '{\"a.first\": 4}', steps = '{\"a.first\": 30}'")
    first, second = await storage.known_namespaces()
    assert first == KnownNamespace("a.first", False, 2, 20, 8, 60, first.updated_at)
    assert second == KnownNamespace("b.second", False, 0, None, 0, 0, second.updated_at)
    assert await storage.known_namespaces("b.second") == [second]
    assert await storage.known_namespaces("nobody.knows") == []


async def test_all_workers(storage: Storage, tables: Tables) -> None:
    """Who fell silent is told from who lives, a collector from a worker."""
    now = datetime.now(UTC)
    tables.set_worker(WORKER, seen_at=now, lease_age=AGE)
    tables.set_worker(5, seen_at=now - timedelta(minutes=1), step_timeouts={}, lease_age=AGE)
    live, silent = sorted(await storage.all_workers(), key=lambda each: each.silent_for)
    assert (live.worker_id, live.is_live, live.host) == (shown_id(WORKER), True, "host")
    assert NS in live.namespaces
    assert (silent.worker_id, silent.is_live, silent.namespaces) == (shown_id(5), False, ())
    assert silent.silent_for >= timedelta(minutes=1)


async def test_retiring(storage: Storage, tables: Tables) -> None:
    """A namespace with nothing left is gone, and a start of it is refused as of any that nobody knows."""
    register(tables)
    register(tables, "other")
    tables.execute(
        "INSERT INTO samples SELECT namespace_no, now(), 0, 0, 0, 0, 0, NULL, '0 s' FROM namespaces"
    )
    left = await storage.retire(NS, lease_age=AGE)
    assert left is not None
    assert left.is_nothing
    assert [each.name for each in await storage.known_namespaces()] == ["other"]
    (outcome,) = await storage.prepare_init([init()])
    assert isinstance(outcome, NotPrepared)
    assert outcome.reason is Reason.NO_NAMESPACE
    assert await storage.retire(NS, lease_age=AGE) is None
    assert len(tables.execute("SELECT namespace_no FROM samples")) == 1


async def test_what_is_in_use_is_not_retired(storage: Storage, tables: Tables) -> None:
    """A live worker, a process, a registration of a moment ago: each keeps it, and is told."""
    tables.set_namespace()
    assert await storage.retire(NS, lease_age=AGE) == Left(0, 0, True)
    register(tables)
    tables.set_worker(WORKER, seen_at=datetime.now(UTC))
    assert await storage.retire(NS, lease_age=AGE) == Left(1, 0, False)
    tables.execute("DELETE FROM workers")
    await start(storage, "p1")
    await start(storage, "p2")
    assert await storage.retire(NS, lease_age=AGE) == Left(0, 2, False)
    await storage.remove(NS, "p1")
    await storage.remove(NS, "p2")
    assert (await storage.retire(NS, lease_age=AGE) or Left(1, 1, True)).is_nothing


async def test_retired_once_though_the_answer_was_lost(dsn: str, tables: Tables) -> None:
    """The repetition finds it gone, and says that it is."""
    register(tables)
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=timedelta(seconds=10))
    connections.late = 2
    left = await storage.retire(NS, lease_age=AGE)
    assert left is not None
    assert left.is_nothing
    await connections.close()


@pytest.mark.parametrize("commits", [True, False])
async def test_a_start_that_is_under_way_is_waited_for(
    storage: Storage, tables: Tables, dsn: str, commits: bool
) -> None:
    """Its process keeps the namespace; if it does not come to be, the namespace goes."""
    register(tables)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "INSERT INTO progressor.processes "
            "(namespace_no, process_id, status, status_changed_at, created_at) "
            "SELECT namespace_no, 'p1', 'running', %s, %s FROM progressor.namespaces",
            (T0, T0),
        )
        retiring = asyncio.create_task(storage.retire(NS, lease_age=AGE))
        await eventually(tables.waiting, "it waits for a lock")
        await (other.commit() if commits else other.rollback())
        assert await retiring == Left(0, int(commits), False)
    tables.execute("DELETE FROM processes")


async def test_a_start_that_waits_for_the_end_finds_it_gone(
    storage: Storage, tables: Tables, dsn: str
) -> None:
    """It was sent before the namespace was gone, and makes no process of one that is not there."""
    register(tables)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(STATEMENTS["lock_processes"].encode())
        await other.execute(STATEMENTS["retire"].encode(), {"name": NS, "lease_age": AGE})
        starting = asyncio.create_task(storage.prepare_init([init()]))
        await eventually(tables.waiting, "it waits for a lock")
        await other.commit()
    (outcome,) = await starting
    assert isinstance(outcome, NotPrepared)
    assert tables.process() is None


async def test_a_worker_that_registers_meanwhile_keeps_it(
    storage: Storage, tables: Tables, dsn: str
) -> None:
    """Whoever retires waits for its row, and finds it young."""
    register(tables)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            STATEMENTS["register_namespace"].encode(),
            {"name": NS, "options": "{}", "schemas": "{}", "since": None},
        )
        retiring = asyncio.create_task(storage.retire(NS, lease_age=AGE))
        await eventually(tables.waiting, "it waits for a lock")
        await other.commit()
    assert await retiring == Left(0, 0, True)
    assert [each.name for each in await storage.known_namespaces()] == [NS]


async def test_who_cannot_have_the_lock_says_so(dsn: str, tables: Tables) -> None:
    """A long transaction on processes is not waited for: those who write would wait behind it."""
    register(tables)
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=SECOND)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("LOCK TABLE progressor.processes IN ROW EXCLUSIVE MODE")
        with pytest.raises(StorageUnavailable, match="lock timeout"):
            await storage.retire(NS, lease_age=AGE)
    assert len(await storage.known_namespaces()) == 1
    await connections.close()


async def test_a_paused_namespace_keeps_what_waits(storage: Storage, tables: Tables) -> None:
    """It waits in the backlog, and is not retired for being idle."""
    register(tables)
    await storage.set_paused(NS, True)
    await wait(storage, init(worker_id=None))
    assert (await storage.backlog(NS, most=10)).calls.tasks == 1
    assert await storage.retire(NS, lease_age=AGE) == Left(0, 1, False)


async def test_status(storage: Storage, tables: Tables) -> None:
    """What waits, runs, is broken and was started lately, of each namespace or of one."""
    now = datetime.now(UTC)
    register(tables)
    register(tables, "empty")
    await storage.prepare_init([init("waits", worker_id=None)], now=now - timedelta(minutes=5))
    await hold(storage, init("runs"), now=now)
    await break_process(storage, "broken")
    for number, later in enumerate((timedelta(hours=2), timedelta(hours=1))):
        await start(storage, f"timed-{number}", set_timer(at=T0 + later))
    tables.set_worker(seen_at=now, lease_age=AGE)
    tables.execute("UPDATE workers SET steps = jsonb_build_object(%s::text, 30)", NS)
    empty, full = await storage.status()
    assert (empty.name, full.name) == ("empty", NS)
    assert (full.calls.tasks, full.timers.tasks, full.running, full.broken) == (1, 0, 1, 1)
    assert full.calls.age >= timedelta(minutes=5)
    # All but the first.
    assert (full.started, full.steps) == (4, 30)
    assert full.next_timers == (T0 + timedelta(hours=1), T0 + timedelta(hours=2))
    assert (empty.calls.tasks, empty.running, empty.broken, empty.started) == (0, 0, 0, 0)
    assert empty.next_timers == ()
    assert await storage.status("empty") == [empty]
    assert await storage.status("nobody.knows") == []


@pytest.mark.parametrize("stands", ["paused", "without a worker"])
async def test_nobody_knows_when_what_stands_is_through(
    storage: Storage, tables: Tables, stands: str
) -> None:
    """The pace of before says nothing where no worker runs anything."""
    now = datetime.now(UTC)
    register(tables)
    await start(storage, "p1")
    for _ in range(3):
        await save(storage, await hold(storage, request(), now=now), resume(), now=now)
    for _ in range(3):
        await wait(storage, request(worker_id=None), now=now)
    tables.set_worker(seen_at=now, lease_age=AGE)
    tables.execute("UPDATE workers SET steps = jsonb_build_object(%s::text, 30)", NS)
    (flows,) = await storage.status()
    assert None not in (flows.through_in, flows.waiting.deepest[0].through_in)
    if stands == "paused":
        await storage.set_paused(NS, True)
    else:
        tables.execute("DELETE FROM workers")
    (status,) = await storage.status()
    assert (status.through_in, status.waiting.deepest[0].through_in) == (None, None)
    assert status.waiting.requests == 3


async def test_counts_stop(storage: Storage, tables: Tables) -> None:
    """Of what is more than 1,000 it is known only that it is more."""
    register(tables)
    tables.execute(
        """
        INSERT INTO processes
            (namespace_no, process_id, status, status_changed_at, created_at, detail, corrupted_by)
        SELECT namespace_no, 'many-' || n, 'error', now(), now(), 'why', n
        FROM generate_series(1, 1500) AS n, namespaces WHERE name = %s
        """,
        NS,
    )
    (full,) = await storage.status(NS)
    assert (full.broken, full.started) == (1001, 1001)
    assert await storage.retire(NS, lease_age=AGE) == Left(0, 1001, False)
    tables.execute("TRUNCATE processes")


async def test_what_failed(storage: Storage, tables: Tables) -> None:
    """Broken processes with what broke them, timers that failed and are tried again; and since when."""
    register(tables)
    await break_process(storage, "by-call")
    await start(storage, "by-timer", set_timer(SECOND))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    retry = Decision(Disposition.RETRY, Reply(error="OSError: down"), None, retry_interval=SECOND)
    await save(storage, step, retry, now=T0 + SECOND)
    await start(storage, "well", set_timer(SECOND))
    broken, retried = await storage.failed([NS])
    assert (broken.process_id, broken.status, broken.at) == ("by-call", "broken", T0)
    assert broken.handler.startswith("call")
    assert (retried.process_id, retried.status, retried.handler) == ("by-timer", "retrying", "timeout")
    assert (retried.error, retried.at) == ("OSError: down", T0 + SECOND)
    assert not retried.at_least
    assert await storage.failed([NS], since=T0 + SECOND) == [retried]
    assert await storage.failed([NS], ago=SECOND) == [broken, retried]
    assert await storage.failed(["nobody.knows"]) == []
