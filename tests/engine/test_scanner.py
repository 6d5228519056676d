"""The scanner: whom it wakes for what, and when it looks again."""

import math
from datetime import timedelta
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY
from psycopg import sql

from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.loggers import message_of
from progressor.services.scanner import Scanner
from progressor.storage import Backlog
from progressor.storage.operations import Storage
from progressor.storage.statements import STATEMENTS
from tests.engine.clock import PAST, start_at
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    WORKER,
    Tables,
    break_process,
    hold,
    init,
    repair,
    request,
    set_timer,
    wait,
)

Wakes = list[tuple[int, str, str]]


class Scanned(Scanner):
    """A scanner that remembers whom it woke."""

    def __init__(self, storage: Storage, *, namespaces: list[str] | None = None) -> None:
        self.woken: Wakes = []
        super().__init__(
            storage,
            interval=SECOND,
            lease_age=15 * SECOND,
            wake=lambda *each: self.woken.append(each),
            namespaces=[NS] if namespaces is None else namespaces,
        )


def set_slots(tables: Tables, worker_id: int, slots: int, namespace: str = NS) -> None:
    """Make a live worker, with so many free slots."""
    tables.execute(
        """
        INSERT INTO workers (worker_id, host, namespaces, step_timeouts, lease_age, free_slots)
        VALUES (%s, 'host', %s, '{60 s}', '15 s', jsonb_build_object(%s::text, %s::integer))
        """,
        worker_id, [namespace], namespace, slots,
    )  # fmt: skip


def gauge(name: str, kind: str) -> float | None:
    return REGISTRY.get_sample_value(f"progressor_{name}", {"prg_namespace": NS, "kind": kind})


def live(namespace: str) -> float | None:
    return REGISTRY.get_sample_value("progressor_live_workers", {"prg_namespace": namespace})


def oldest_snapshot() -> float:
    age = REGISTRY.get_sample_value("progressor_oldest_snapshot_age_ms")
    assert age is not None
    return age


@pytest.fixture
def scanner(storage: Storage) -> Scanned:
    return Scanned(storage)


async def test_no_work_wakes_nobody(scanner: Scanned, tables: Tables) -> None:
    """Without work no worker is disturbed, and the next look can wait for the interval."""
    set_slots(tables, WORKER, 10)
    assert await scanner.run_once() is None
    assert scanner.woken == []


async def test_what_cannot_be_read_hides_no_other_namespace(storage: Storage, tables: Tables) -> None:
    """A timer that somebody parked by hand is an error that is told, after all others were looked at."""
    await start_at(storage, None, "p1", set_timer(SECOND))
    for table in ("schedule", "tasks"):
        where = sql.SQL("UPDATE {} SET scheduled_time = 'infinity' WHERE task_type = 'timeout'")
        tables.connection.execute(where.format(sql.Identifier(table)))
    tables.execute("INSERT INTO namespaces (name, options) VALUES ('shop.later', '{}')")
    set_slots(tables, WORKER, 10, "shop.later")
    scanner = Scanned(storage, namespaces=[NS, "shop.later"])
    await wait(storage, init("p2", namespace="shop.later", worker_id=None))
    with pytest.raises(InvalidRequest):
        await scanner.run_once()
    assert scanner.woken == [(WORKER, "shop.later", "calls")]


async def test_idle_namespaces_are_one_look(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is due none is looked at alone; what was published of a backlog there is 0 then."""
    names = [NS, "shop.timed", "shop.quiet"]
    for worker_id, name in enumerate(names):
        tables.set_namespace(name)
        set_slots(tables, worker_id, 10, name)
    await start_at(storage, None, "p1", set_timer(timedelta(minutes=5)), namespace="shop.timed")
    alone: list[str] = []
    backlog = storage.backlog

    async def noted(namespace: str, *, most: int) -> Backlog:
        alone.append(namespace)
        return await backlog(namespace, most=most)

    monkeypatch.setattr(storage, "backlog", noted)
    scanner = Scanned(storage, namespaces=names)
    await wait(storage, init(worker_id=None))
    soonest = await scanner.run_once()
    assert (alone, gauge("backlog", "calls"), len(scanner.woken)) == ([NS], 1, 1)
    assert timedelta(minutes=4) < soonest < timedelta(minutes=5, seconds=1)
    await storage.remove(NS, "p1")
    await scanner.run_once()
    assert (alone, gauge("backlog", "calls"), len(scanner.woken)) == ([NS], 0, 1)
    await Scanned(storage).run_once()
    assert alone == [NS, NS]
    await scanner.stop()


async def test_one_call_wakes_one_worker(scanner: Scanned, storage: Storage, tables: Tables) -> None:
    """One waiting call wakes one worker, of however many there are."""
    for number in range(20):
        set_slots(tables, number, 10)
    await wait(storage, init(worker_id=None))
    await scanner.run_once()
    ((_, namespace, kind),) = scanner.woken
    assert (namespace, kind) == (NS, "calls")


async def test_as_many_workers_as_there_is_work(scanner: Scanned, storage: Storage, tables: Tables) -> None:
    """Workers are woken until their free slots are enough for what waits."""
    for number in range(20):
        set_slots(tables, number, 10)
    for number in range(25):
        await wait(storage, init(f"p{number}", worker_id=None))
    await scanner.run_once()
    assert len(scanner.woken) == 3
    assert len({worker_id for worker_id, _, _ in scanner.woken}) == 3


async def test_those_with_room_come_first(scanner: Scanned, storage: Storage, tables: Tables) -> None:
    """A worker that said it has no room is woken only if no other is left."""
    full, free = WORKER, OTHER_WORKER
    set_slots(tables, full, 0)
    set_slots(tables, free, 1)
    await wait(storage, init("p1", worker_id=None))
    await scanner.run_once()
    assert scanner.woken == [(free, NS, "calls")]
    scanner.woken.clear()
    await wait(storage, init("p2", worker_id=None))
    await scanner.run_once()
    assert scanner.woken == [(free, NS, "calls"), (full, NS, "calls")]


async def test_only_live_workers_of_the_namespace(
    scanner: Scanned, storage: Storage, tables: Tables
) -> None:
    """Workers of other namespaces and workers without a fresh heartbeat are left alone."""
    set_slots(tables, WORKER, 10, namespace="other")
    tables.set_worker(OTHER_WORKER, seen_at=PAST)
    await wait(storage, init(worker_id=None))
    await scanner.run_once()
    assert scanner.woken == []


async def test_live_workers_are_published(scanner: Scanned, storage: Storage, tables: Tables) -> None:
    """A gauge says how many workers serve a namespace: 0 too."""
    tables.set_worker(OTHER_WORKER, seen_at=PAST)
    await scanner.run_once()
    assert live(NS) == 0
    set_slots(tables, WORKER, 10)
    set_slots(tables, 7, 10)
    await scanner.run_once()
    assert live(NS) == 2


async def test_a_namespace_of_the_past_is_not_shown(storage: Storage, tables: Tables) -> None:
    """A scanner of all namespaces shows those that are served or have something to do; at its end, none."""
    for name in ("served", "waiting", "timed", "gone"):
        tables.set_namespace(name)
    set_slots(tables, WORKER, 1, namespace="served")
    await wait(storage, init("p1", worker_id=None, namespace="waiting"), now=PAST)
    await start_at(storage, None, "p2", set_timer(timedelta(days=9)), namespace="timed")
    scanner = Scanned(storage)
    scanner._namespaces = None
    await scanner.run_once()
    assert [live(name) for name in ("served", "waiting", "timed", "gone")] == [1, 0, 0, None]
    tables.execute("DELETE FROM workers")
    await scanner.run_once()
    assert [live(name) for name in ("served", "waiting", "timed")] == [None, 0, 0]
    await scanner.stop()
    assert [live(name) for name in ("waiting", "timed")] == [None, None]


async def test_the_oldest_snapshot(scanner: Scanned, tables: Tables, dsn: str) -> None:
    """A transaction that holds up the clearing of dead rows is seen once a minute, however it does."""
    await scanner.run_once()
    # PostgreSQL itself may hold one for some milliseconds, to analyze a table.
    while oldest_snapshot() > 0:
        scanner._snapshots_at = 0
        await scanner.run_once()
    tables.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    tables.execute("SELECT count(*) FROM events")
    await scanner.run_once()
    assert oldest_snapshot() == 0
    scanner._snapshots_at = 0
    await scanner.run_once()
    assert oldest_snapshot() > 0
    tables.execute("ROLLBACK")
    tables.execute("BEGIN")
    tables.execute("UPDATE namespaces SET paused = paused")
    scanner._snapshots_at = 0
    await scanner.run_once()
    assert oldest_snapshot() > 0
    tables.execute("ROLLBACK")


def test_the_oldest_snapshot_that_may_not_be_seen(tables: Tables) -> None:
    """A role that does not see the transactions of others gets no number, instead of a good one."""
    role = sql.Identifier(f"prg_test_{uuid4().hex}")
    tables.connection.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        tables.connection.execute(sql.SQL("SET ROLE {}").format(role))
        assert tables.connection.execute(STATEMENTS["oldest_snapshot"].encode()).fetchone() == (None,)
        tables.connection.execute("RESET ROLE")
        tables.connection.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(role))
        tables.connection.execute(sql.SQL("SET ROLE {}").format(role))
        assert tables.connection.execute(STATEMENTS["oldest_snapshot"].encode()).fetchone() == (0.0,)
    finally:
        tables.connection.execute("RESET ROLE")
        tables.connection.execute(sql.SQL("DROP ROLE {}").format(role))


async def test_due_timers_wake_for_timers(scanner: Scanned, storage: Storage, tables: Tables) -> None:
    """A timer that is due wakes a worker for timers; one that is not tells when to look again."""
    set_slots(tables, WORKER, 10)
    await start_at(storage, PAST, "due", set_timer(at=PAST + SECOND))
    await start_at(storage, None, "later", set_timer(timedelta(minutes=5)))
    soonest = await scanner.run_once()
    assert scanner.woken == [(WORKER, NS, "timers")]
    assert timedelta(minutes=4) < soonest < timedelta(minutes=5, seconds=1)


async def test_the_soonest_timer_of_all_namespaces(storage: Storage, tables: Tables) -> None:
    """Without a list it watches every namespace that is registered, and sleeps until the next timer."""
    scanner = Scanned(storage, namespaces=[])
    assert await scanner.run_once() is None
    scanner._namespaces = None
    for name, minutes in (("a", 9), ("b", 3), ("c", 6)):
        tables.set_namespace(name)
        await start_at(storage, None, f"p-{name}", set_timer(timedelta(minutes=minutes)), namespace=name)
    soonest = await scanner.run_once()
    assert timedelta(minutes=2) < soonest < timedelta(minutes=3, seconds=1)


async def test_blocked_timers_and_calls_behind_others_are_no_work(
    scanner: Scanned, storage: Storage, tables: Tables
) -> None:
    """What cannot be claimed wakes nobody: a timer blocked by a call, a call behind another."""
    set_slots(tables, WORKER, 1)
    set_slots(tables, OTHER_WORKER, 1)
    await start_at(storage, PAST, "p1", set_timer(at=PAST + SECOND))
    await wait(storage, request("p1", worker_id=None))
    await wait(storage, request("p1", worker_id=None))
    await scanner.run_once()
    assert len(scanner.woken) == 1
    assert scanner.woken[0][2] == "calls"
    assert (gauge("backlog", "calls"), gauge("backlog", "timers")) == (1, 0)


async def test_a_paused_namespace_is_published_and_wakes_nobody(
    scanner: Scanned, storage: Storage, tables: Tables
) -> None:
    """What waits in it is shown; it is shown also while nobody serves it and nothing waits."""

    def paused() -> float | None:
        return REGISTRY.get_sample_value("progressor_namespace_paused", {"prg_namespace": NS})

    set_slots(tables, WORKER, 10)
    await wait(storage, init(worker_id=None), now=PAST)
    tables.execute("UPDATE namespaces SET paused = TRUE")
    await scanner.run_once()
    assert (paused(), gauge("backlog", "calls"), scanner.woken) == (1, 1, [])
    tables.execute("DELETE FROM workers")
    await storage.remove(NS, "p1")
    scanner._namespaces = None
    await scanner.run_once()
    assert paused() == 1
    tables.execute("UPDATE namespaces SET paused = FALSE")
    await scanner.run_once()
    assert paused() is None


async def test_a_pause_is_logged_once(
    scanner: Scanned, storage: Storage, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """With its reason, and its end."""
    caplog.set_level("INFO", "progressor.scanner")
    set_slots(tables, WORKER, 10)
    tables.set_namespace()
    await scanner.run_once()
    await storage.set_paused(NS, True, "the provider is down")
    await scanner.run_once()
    await scanner.run_once()
    await storage.set_paused(NS, False)
    await scanner.run_once()
    paused, resumed = caplog.records
    assert (message_of(paused), vars(paused)["reason"]) == ("namespace paused", "the provider is down")
    assert message_of(resumed) == "namespace resumed"


async def test_the_backlog_is_published(scanner: Scanned, storage: Storage, tables: Tables) -> None:
    """Gauges say how much waits, and for how long the oldest has."""
    for number in range(3):
        await wait(storage, init(f"p{number}", worker_id=None), now=PAST)
    await start_at(storage, PAST, "due", set_timer(at=PAST + SECOND))
    await scanner.run_once()
    assert (gauge("backlog", "calls"), gauge("backlog", "timers")) == (3, 1)
    assert gauge("backlog_oldest_age_ms", "calls") > gauge("backlog_oldest_age_ms", "timers") > 0


def figure(name: str) -> float | None:
    return REGISTRY.get_sample_value(f"progressor_{name}", {"prg_namespace": NS})


async def test_deep_mailboxes_are_published(scanner: Scanned, storage: Storage, tables: Tables) -> None:
    """What waits behind a step that runs is no backlog; once a minute it is counted all the same."""
    set_slots(tables, WORKER, 10)
    await hold(storage, init("p1"))
    for _ in range(3):
        await wait(storage, request("p1", worker_id=None), now=PAST)
    await scanner.run_once()
    assert gauge("backlog", "calls") == 0
    assert (figure("waiting_requests"), figure("deepest_mailbox")) == (3, 3)
    age, through = figure("waiting_oldest_age_ms"), figure("waiting_through_ms")
    assert age is not None
    assert age > 1000
    assert through is not None
    assert math.isnan(through)
    await wait(storage, request("p1", worker_id=None), now=PAST)
    await scanner.run_once()
    assert figure("waiting_requests") == 3
    scanner._looks_at.clear()
    await scanner.run_once()
    assert figure("waiting_requests") == 4


async def test_broken_processes_are_published(scanner: Scanned, storage: Storage, tables: Tables) -> None:
    """As many as are broken by now: until they are repaired."""
    set_slots(tables, WORKER, 10)
    await break_process(storage, "p1")
    await break_process(storage, "p2")
    await scanner.run_once()
    assert figure("broken_processes") == 2
    await storage.simple_repair([repair("p1")])
    scanner._looks_at.clear()
    await scanner.run_once()
    assert figure("broken_processes") == 1


async def test_broken_processes_that_nobody_serves_are_published(storage: Storage, tables: Tables) -> None:
    """Until the last one is repaired, or its namespace retired; its workers and mailboxes are not."""
    scanner = Scanned(storage)
    scanner._namespaces = None
    set_slots(tables, WORKER, 10)
    await break_process(storage, "p1")
    await scanner.run_once()
    assert (figure("broken_processes"), live(NS)) == (1, 1)
    tables.execute("DELETE FROM workers")
    for _ in range(2):
        await scanner.run_once()
        # A worker that is missing there is missed by nobody.
        assert [figure(name) for name in ("broken_processes", "waiting_requests")] == [1, None]
        assert live(NS) is None
    fresh = Scanned(storage)
    fresh._namespaces = None
    await scanner.stop()
    assert figure("broken_processes") is None
    await fresh.run_once()
    assert figure("broken_processes") == 1
    set_slots(tables, WORKER, 10)
    await fresh.run_once()
    assert [figure(name) for name in ("broken_processes", "waiting_requests")] == [1, 0]
    await storage.simple_repair([repair("p1")])
    tables.execute("DELETE FROM workers")
    await fresh.run_once()
    assert figure("broken_processes") is None
    await break_process(storage, "p2")
    fresh._looks_at.clear()
    await fresh.run_once()
    assert figure("broken_processes") == 1
    fresh._namespaces = []
    await fresh.run_once()
    assert figure("broken_processes") is None


async def test_what_nobody_looks_at_is_not_shown(scanner: Scanned, tables: Tables) -> None:
    """Neither mailboxes nor broken processes of a scanner that was stopped."""
    set_slots(tables, WORKER, 10)
    await scanner.run_once()
    names = ("waiting_requests", "waiting_oldest_age_ms", "deepest_mailbox", "waiting_through_ms")
    assert None not in map(figure, (*names, "broken_processes"))
    await scanner.stop()
    assert {figure(name) for name in (*names, "broken_processes")} == {None}


async def test_the_load_is_noted_once_a_minute(storage: Storage, tables: Tables) -> None:
    """By the first scanner that comes; what is older than a day goes."""
    await wait(storage, init(worker_id=None))
    tables.execute(
        "INSERT INTO samples SELECT namespace_no, date_trunc('minute', now()) - interval '25 h', "
        "0, 0, 0, 0, 0, NULL, '0 s' FROM namespaces"
    )
    for scanner in (Scanned(storage), Scanned(storage)):
        await scanner.run_once()
        await scanner.stop()
    noted = tables.execute("SELECT sampled_at > now() - interval '2 minutes' AS young FROM samples")
    assert {row["young"] for row in noted} == {True}
    # A minute may have ended between the two.
    assert 1 <= len(noted) <= 2
    samples = await storage.samples([NS, "another"], within=timedelta(hours=1))
    assert [(each.waiting, each.broken, each.timers) for each in samples] == [(1, 0, 0)] * len(noted)
    assert await storage.samples(["another"], within=timedelta(hours=1)) == []


async def test_all_are_woken_before_the_load_is_noted(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What keeps it from being noted keeps nobody asleep."""
    await wait(storage, init(worker_id=None))
    set_slots(tables, WORKER, 3)

    async def refused(_: object) -> None:
        raise StorageUnavailable("the table is locked")

    monkeypatch.setattr(storage, "note_samples", refused)
    scanner = Scanned(storage)
    with pytest.raises(StorageUnavailable, match="locked"):
        await scanner.run_once()
    assert scanner.woken == [(WORKER, NS, "calls")]
    await scanner.stop()
