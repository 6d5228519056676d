"""Retention: what is old is deleted, what is needed stays, and nobody waits for it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import psycopg
import pytest

from progressor.config import FOR_EVER, Retention
from progressor.loggers import message_of
from progressor.services.retention_sweeper import RetentionSweeper
from progressor.storage.admin import sweeps as rounds
from progressor.storage.admin.retention import Swept
from progressor.storage.doctor import examine
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.statements import Results, Transaction
from progressor.storage.values import Gone
from progressor.timers import SetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    change_timers,
    events,
    fail,
    hold,
    repair,
    request,
    resume,
    save,
    start,
    wait,
)

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
OLD, YOUNG = T0, T0 + 100 * DAY
LATER = YOUNG + HOUR
KEPT = Retention(tasks=90 * DAY)
SAID = KEPT.model_dump(mode="json")
FAULT = "retention cannot be read, everything is kept"


@pytest.fixture(autouse=True)
def sound(dsn: str, storage: Storage) -> object:
    """Whatever a test does, the invariants of the tables hold after it."""
    yield
    # Before all marks: most tests make them in a future of their own.
    assert [each for each in examine(dsn, now=T0 - SECOND).invariants if not each.holds] == []


async def keep(storage: Storage, kept: Retention, *, now: datetime = LATER) -> None:
    assert await storage.set_retention(NS, kept, now=now)


async def walk(storage: Storage, *, now: datetime = LATER) -> tuple[int, int]:
    """A whole walk; the tasks and events that it deleted."""
    assert await storage.begin_sweep(NS, now=now)
    tasks = deleted = 0
    while (swept := await storage.sweep(rate=1_000_000, now=now)) is not None:
        tasks, deleted = tasks + swept.tasks, deleted + swept.events
        now += SECOND
    return tasks, deleted


async def call(storage: Storage, process_id: str = "p1", *, at: datetime, emits: int = 1) -> int:
    """A call that has ended; its number."""
    step = await hold(storage, request(process_id), now=at)
    await save(storage, step, resume(events=events(emits)), now=at)
    return step.task.task_id


def numbers(tables: Tables, process_id: str = "p1") -> list[int]:
    return [row["task_id"] for row in tables.tasks(process_id)]


async def test_what_has_ended_long_ago_is_deleted(storage: Storage, tables: Tables) -> None:
    """Tasks by the time of their end; events stay unless they have a time too."""
    await start(storage)
    old = [await call(storage, at=OLD) for _ in range(3)]
    young = await call(storage, at=YOUNG)
    await keep(storage, KEPT)
    assert await walk(storage) == (4, 0)
    assert numbers(tables) == [young]
    assert tables.process("p1")["swept_until"] == old[-1]
    assert [row["event_id"] for row in tables.events("p1")] == [1, 2, 3, 4]
    assert await walk(storage) == (0, 0)


async def test_what_is_not_said_is_kept_for_ever(storage: Storage, tables: Tables) -> None:
    """Neither without a retention nor with one for ever is anything deleted."""
    await start(storage)
    await call(storage, at=OLD)
    assert await storage.sweep(rate=1, now=LATER) is None
    await keep(storage, FOR_EVER)
    assert await walk(storage) == (0, 0)
    assert len(tables.tasks("p1")) == 2


async def test_a_key_may_be_kept_for_longer(storage: Storage, tables: Tables) -> None:
    """With its task, by which a request that is repeated is answered."""
    await start(storage)
    asked = request(key="kept")
    step = await hold(storage, asked, now=OLD)
    await save(storage, step, resume(), now=OLD)
    await keep(storage, Retention(tasks=DAY, keys=101 * DAY))
    assert await walk(storage) == (0, 0)
    assert (await storage.prepare_call([asked], now=LATER))[0] is not None
    assert await walk(storage, now=LATER + 2 * DAY) == (2, 0)
    assert numbers(tables) == []


async def test_what_is_needed_stays(storage: Storage, tables: Tables) -> None:
    """What waits, what runs, timers, and what broke the process, until that is repaired."""
    await start(storage, "broken")
    broke = await hold(storage, request("broken"), now=OLD)
    await save(storage, broke, fail(), now=OLD)
    await start(storage, "busy")
    timed = await hold(storage, request("busy"), now=OLD)
    await save(storage, timed, change_timers(SetTimer(after=200 * DAY, name="far")), now=OLD)
    running = await hold(storage, request("busy"), now=OLD)
    waiting = await wait(storage, request("busy", worker_id=None), now=OLD)
    await keep(storage, KEPT)
    assert await walk(storage) == (3, 0)
    assert numbers(tables, "broken") == [broke.task.task_id]
    (timer,) = [row["task_id"] for row in tables.tasks("busy") if row["task_type"] == "timeout"]
    assert sorted(numbers(tables, "busy")) == sorted([timer, running.task.task_id, waiting.task_id])
    await storage.simple_repair([repair("broken")], now=LATER)
    assert await walk(storage) == (1, 0)


async def test_events_by_age(storage: Storage, tables: Tables) -> None:
    """Those before the first that is young enough; perhaps all of them, and numbers go on."""
    await start(storage)
    await call(storage, at=OLD, emits=3)
    await call(storage, at=YOUNG, emits=2)
    await keep(storage, Retention(events=50 * DAY))
    assert await walk(storage) == (0, 3)
    assert [row["event_id"] for row in tables.events("p1")] == [4, 5]
    assert tables.process("p1")["first_event_id"] == 4
    await keep(storage, Retention(events=HOUR))
    assert await walk(storage, now=YOUNG + 2 * DAY) == (0, 2)
    assert tables.process("p1")["first_event_id"] == 6
    await call(storage, at=YOUNG + 2 * DAY)
    assert [row["event_id"] for row in tables.events("p1")] == [6]


async def test_events_by_number(storage: Storage, tables: Tables) -> None:
    """The newest of each process stay, however old."""
    await start(storage, "few")
    await call(storage, "few", at=OLD, emits=2)
    await start(storage, "many")
    await call(storage, "many", at=YOUNG, emits=7)
    await keep(storage, Retention(events=2))
    assert await walk(storage) == (0, 5)
    assert [row["event_id"] for row in tables.events("few")] == [1, 2]
    assert [row["event_id"] for row in tables.events("many")] == [6, 7]


@pytest.mark.parametrize(
    ("looks", "reads", "most", "rows"),
    [(1, 1, 1, 1), (2, 2, 5, 3), (5, 100, 2, 100), (3, 5, 3, 7), (7, 9, 1, 2)],
)
async def test_a_walk_in_small_rounds(
    storage: Storage,
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
    looks: int,
    reads: int,
    most: int,
    rows: int,
) -> None:
    """However small, they delete the same, each once, and come to an end."""
    for name, value in (("_LOOKS", looks), ("_READS", reads), ("_HELD", most), ("_ROWS", rows)):
        monkeypatch.setattr(rounds, name, value)
    for n in range(7):
        await start(storage, f"p{n}")
        for _ in range(n):
            await call(storage, f"p{n}", at=OLD, emits=2)
    await call(storage, "p3", at=YOUNG)
    await keep(storage, Retention(tasks=90 * DAY, events=90 * DAY))
    assert await walk(storage) == (7 + 21, 42)
    assert [row["event_id"] for row in tables.events("p3")] == [7]
    known = await storage.retention(NS)
    assert known is not None
    assert (known.tasks_deleted, known.events_deleted, known.is_walking) == (28, 42, False)


async def test_a_walk_goes_on_behind_what_it_has_seen(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a process too: it reads no row twice, deleted or not."""
    for name, value in (("_READS", 3), ("_ROWS", 2)):
        monkeypatch.setattr(rounds, name, value)
    read, transact = [], Session.transact

    async def noted(session: Session, statements: Transaction, hints: Hints | None = None) -> Results:
        found = await transact(session, statements, hints)
        read.extend(
            (row["process_no"], row["last_read"], row["reads"]) for row in found.get("look_tasks", ())
        )
        return found

    await start(storage)
    for _ in range(4):
        await call(storage, at=OLD, emits=2)
        await call(storage, at=YOUNG)
    await start(storage, "p2")
    await keep(storage, Retention(tasks=90 * DAY, events=90 * DAY))
    monkeypatch.setattr(Session, "transact", noted)
    assert await walk(storage) == (6, 2)
    assert sum(reads for _, _, reads in read) == 10
    assert read == sorted(read)
    assert len(numbers(tables)) == 4


async def test_a_large_process_that_a_step_holds_ends_no_walk(
    storage: Storage, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which a round would see a part: it goes on behind it, and does not stay until it is free."""
    for name in ("_READS", "_ROWS"):
        monkeypatch.setattr(rounds, name, 2)
    await start(storage)
    for _ in range(5):
        await call(storage, at=OLD, emits=2)
    await start(storage, "p2")
    await keep(storage, Retention(tasks=90 * DAY, events=90 * DAY))
    with psycopg.connect(dsn) as own:
        own.execute("SET search_path = progressor")
        own.execute("SELECT FROM processes WHERE process_id = 'p1' FOR NO KEY UPDATE")
        async with asyncio.timeout(20):
            assert await walk(storage) == (1, 0)
    assert await walk(storage) == (6, 10)


@pytest.mark.parametrize(
    ("kept", "looks"),
    [
        (KEPT, {"look_tasks"}),
        (Retention(events=1), {"look_events"}),
        (Retention(events=DAY), {"look_events"}),
        (Retention(tasks=DAY, events=1), {"look_tasks", "look_events"}),
        (FOR_EVER, set()),
    ],
)
async def test_what_is_kept_for_ever_is_not_read(
    storage: Storage, sent: set[str], kept: Retention, looks: set[str]
) -> None:
    """Neither tasks where only events go, nor events where only tasks do."""
    await start(storage)
    await keep(storage, kept)
    await walk(storage)
    assert {"look_tasks", "look_events"} & sent == looks


async def test_what_is_only_looked_at_has_a_pace_too(storage: Storage) -> None:
    """A walk through rows that stay takes its time: twenty of them count as one that is deleted."""
    await start(storage)
    for _ in range(19):
        await call(storage, at=YOUNG)
    await keep(storage, Retention(tasks=100 * DAY, events=100 * DAY))
    assert await storage.sweep(rate=1 / HOUR.total_seconds() / 24, now=LATER) is not None
    known = await storage.retention(NS)
    assert known is not None
    assert (known.next_at or LATER) - LATER > DAY


async def test_other_times_amid_a_walk(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator who sets some has the walk begin anew; code that says none any more ends it."""
    monkeypatch.setattr(rounds, "_ROWS", 1)
    await start(storage)
    old = [await call(storage, at=OLD), await call(storage, at=YOUNG)]
    options = {"retention": SAID}
    await storage.register_namespace(NS, options=options, schemas={})
    assert (await storage.sweep(rate=1000, now=LATER)) == Swept(NS, 1, 0, is_over=False)
    await keep(storage, Retention(tasks=HOUR), now=LATER + 2 * HOUR)
    assert (await storage.sweep(rate=1000, now=LATER + 2 * HOUR)) == Swept(NS, 1, 0, is_over=False)
    assert await storage.set_retention(NS, None, now=LATER + 2 * HOUR)
    await storage.register_namespace(NS, options={}, schemas={})
    assert (await storage.sweep(rate=1000, now=LATER + 3 * HOUR)) == Swept(NS, 0, 0, is_over=True)
    assert numbers(tables) == [old[1]]
    await keep(storage, Retention(tasks=HOUR), now=LATER + 3 * HOUR)
    assert await walk(storage, now=LATER + 3 * HOUR) == (1, 0)


async def test_a_process_that_is_removed(storage: Storage) -> None:
    """What is left of its rows is the business of its removal, and counts in no walk."""
    await start(storage)
    await call(storage, at=OLD, emits=3)
    await start(storage, "p2")
    await keep(storage, Retention(tasks=HOUR, events=HOUR))
    await storage.remove(NS, "p1", now=LATER)
    assert await walk(storage) == (1, 0)


async def test_a_namespace_that_is_retired_meanwhile(storage: Storage, tables: Tables) -> None:
    """While a runner gives it a row: that is never due."""
    tables.execute("INSERT INTO retention (namespace_no, next_at) VALUES (1000, %s)", OLD)
    assert await storage.sweep(rate=1, now=LATER) is None
    assert await storage.next_sweep(now=LATER) is None


async def test_two_sweepers(storage: Storage, dsn: str) -> None:
    """One that finds the walk held, which stays due until its round ends, waits a whole interval."""
    sweeper = RetentionSweeper(storage, rate=1, interval=SECOND)
    await start(storage)
    assert await storage.set_retention(NS, KEPT)
    with psycopg.connect(dsn) as own:
        own.execute("SET search_path = progressor")
        own.execute("SELECT FROM retention FOR NO KEY UPDATE")
        assert await sweeper.run_once() is None


async def test_a_repair_of_a_bulk_that_begins_meanwhile(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look and its locks: all tasks and events of the process stay."""
    await start(storage)
    await call(storage, at=OLD, emits=3)
    number = tables.process("p1")["process_no"]
    transact = Session.transact

    async def late(session: Session, statements: Transaction, hints: Hints | None = None) -> Results:
        if "sweep_tasks" in statements:
            assert "sweep_events" in statements
            tables.execute(
                "INSERT INTO bulk_repairs (bulk_id, process_no, task_id) VALUES (1, %s, 9)", number
            )
        return await transact(session, statements, hints)

    await keep(storage, Retention(tasks=90 * DAY, events=1))
    monkeypatch.setattr(Session, "transact", late)
    assert await walk(storage) == (0, 0)
    assert len(numbers(tables)) == 2
    tables.execute("DELETE FROM bulk_repairs")


@pytest.mark.parametrize(
    "wrong", ["first_event_id + 1", "first_event_id - 1", "NULL", "last_event_id + 2", "0"]
)
async def test_the_doctor_sees_a_damaged_mark(
    storage: Storage, dsn: str, tables: Tables, wrong: str
) -> None:
    """Of the first event that is left."""
    await start(storage)
    await call(storage, at=OLD, emits=5)
    await keep(storage, Retention(events=2))
    assert await walk(storage) == (0, 3)
    tables.execute(f"UPDATE processes SET first_event_id = {wrong}")
    broken = [each.name for each in examine(dsn, now=T0).invariants if not each.holds]
    tables.execute("UPDATE processes SET first_event_id = 4")
    assert broken == ["events_gapless"]


async def test_large_values_are_deleted_in_pieces(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round has a bound in bytes, and deletes one row at least. The last finds that there are no more."""
    monkeypatch.setattr(rounds, "_BYTES", 1000)
    await start(storage)
    for _ in range(3):
        step = await hold(storage, request(args=b"x" * 2000), now=OLD)
        await save(storage, step, resume(), now=OLD)
    await keep(storage, KEPT)
    found = []
    now = LATER
    while (swept := await storage.sweep(rate=1_000_000, now=now)) is not None:
        found.append(swept.tasks)
        now += SECOND
    assert found == [2, 1, 1, 0]


async def test_a_process_that_a_step_holds_is_passed_by(storage: Storage, dsn: str) -> None:
    """A walk waits for nobody for long; the next one comes by again."""
    for process_id in ("p1", "p2"):
        await start(storage, process_id)
    await keep(storage, KEPT)
    with psycopg.connect(dsn) as own:
        own.execute("SET search_path = progressor")
        own.execute("SELECT FROM processes WHERE process_id = 'p1' FOR NO KEY UPDATE")
        async with asyncio.timeout(20):
            assert await walk(storage) == (1, 0)
    known = await storage.retention(NS)
    assert known is not None
    assert known.passed_by == 1
    assert await walk(storage) == (1, 0)


async def test_damage_of_one_namespace_holds_up_no_other(storage: Storage, tables: Tables) -> None:
    """Rows that PostgreSQL cannot read put off the walk that met them; then it goes on where it stands."""
    other = f"{NS}.other"
    tables.set_namespace(other)
    await start(storage)
    await start(storage, namespace=other)
    for namespace in (NS, other):
        assert await storage.set_retention(namespace, KEPT, now=LATER)
    tables.execute("""
        CREATE FUNCTION progressor.damaged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF OLD.process_no = (SELECT min(process_no) FROM progressor.processes) THEN
                RAISE 'invalid page in block 7' USING ERRCODE = 'XX001';
            END IF;
            RETURN OLD;
        END $$""")
    tables.execute("""
        CREATE TRIGGER damaged BEFORE DELETE ON progressor.tasks
        FOR EACH ROW EXECUTE FUNCTION progressor.damaged()""")
    for namespace in (NS, other):
        assert await storage.begin_sweep(namespace, now=LATER)
    found = [await storage.sweep(rate=1_000_000, now=LATER + n * SECOND) for n in range(3)]
    assert {each.namespace: each.damage for each in found if each} == {
        NS: "DataCorrupted: invalid page in block 7",
        other: None,
    }
    assert found[2] is None
    later = LATER + timedelta(minutes=6)
    assert (await storage.sweep(rate=1_000_000, namespace=NS, now=later) or found[0]).damage
    tables.execute("DROP TRIGGER damaged ON progressor.tasks")
    assert await storage.sweep(rate=1_000_000, namespace=NS, now=later + timedelta(minutes=6)) == Swept(
        NS, 1, 0, is_over=True
    )


def lock(own: psycopg.Connection, process_id: str) -> None:
    own.execute("SET search_path = progressor")
    own.execute("SELECT FROM processes WHERE process_id = %s FOR NO KEY UPDATE", [process_id])


async def until_waiting(tables: Tables, walking: asyncio.Task[object]) -> None:
    """A walk waits for a lock, or has ended."""
    while not tables.waiting() and not walking.done():  # noqa: ASYNC110 - there is no event to wait on
        await asyncio.sleep(0.001)


async def test_a_hot_process_is_swept(
    storage: Storage, dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a step holds it whenever a round comes by: each round waits for that step."""
    monkeypatch.setattr(rounds, "_PATIENCE", "10s")
    for name in ("_READS", "_ROWS"):
        monkeypatch.setattr(rounds, name, 3)
    await start(storage)
    for _ in range(9):
        await call(storage, at=OLD, emits=1)
    await start(storage, "p2")
    await keep(storage, Retention(tasks=90 * DAY, events=90 * DAY))
    with psycopg.connect(dsn) as own:
        lock(own, "p1")
        async with asyncio.timeout(60):
            walking = asyncio.ensure_future(walk(storage))
            while not walking.done():
                await until_waiting(tables, walking)
                own.commit()
                # A step that comes behind the round: it waits for that one.
                await asyncio.to_thread(lock, own, "p1")
            assert await walking == (11, 9)


async def test_nobody_waits_for_a_walk_that_waits(
    storage: Storage, dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends its round before a process that a step holds, and waits with no other one locked."""
    monkeypatch.setattr(rounds, "_PATIENCE", "10s")
    for process_id in ("p1", "p2", "p3"):
        await start(storage, process_id)
    await keep(storage, KEPT)
    with psycopg.connect(dsn) as own, psycopg.connect(dsn) as other:
        lock(own, "p2")
        async with asyncio.timeout(60):
            walking = asyncio.ensure_future(walk(storage))
            await until_waiting(tables, walking)
            assert not walking.done()
            assert [len(numbers(tables, f"p{n}")) for n in (1, 2, 3)] == [0, 1, 1]
            other.execute("SET lock_timeout = '1ms'")
            for process_id in ("p1", "p3"):
                lock(other, process_id)
            other.rollback()
            own.commit()
            assert await walking == (3, 0)


async def test_one_walk_at_a_time(storage: Storage, dsn: str) -> None:
    """A runner passes by a namespace in which another one walks."""
    await start(storage)
    await keep(storage, KEPT)
    with psycopg.connect(dsn) as own:
        own.execute("SET search_path = progressor")
        own.execute("SELECT FROM retention FOR NO KEY UPDATE")
        assert await storage.sweep(rate=1, now=LATER) is None
    assert await storage.sweep(rate=1, now=LATER) is not None


async def test_the_pace_of_a_walk(storage: Storage) -> None:
    """The next round is due when its rate allows it; the next walk in a day at most."""
    await start(storage)
    for _ in range(9):
        await call(storage, at=OLD)
    await keep(storage, KEPT)
    swept = await storage.sweep(rate=2, now=LATER)
    assert swept is not None
    assert (swept.tasks, swept.is_over) == (10, True)
    assert await storage.sweep(rate=2, now=LATER + 23 * HOUR) is None
    assert await storage.next_sweep(now=LATER) == DAY
    assert await storage.sweep(rate=2, now=LATER + DAY) is not None


async def test_the_times_that_code_says(storage: Storage) -> None:
    """They hold until an operator sets others, and again when these are taken back."""
    for kept, shown in (
        (Retention(tasks=5 * DAY, keys=7 * DAY, events=3), (5 * DAY, 7 * DAY, None, 3)),
        (Retention(tasks=5 * DAY, events=400 * DAY), (5 * DAY, None, 400 * DAY, None)),
        (None, (None, None, None, None)),
    ):
        options = {"retention": None if kept is None else kept.model_dump(mode="json")}
        await storage.register_namespace(NS, options=options, schemas={})
        known = await storage.retention(NS)
        assert known is not None
        assert not known.is_set
        assert (known.tasks, known.keys, known.events_for, known.events_last) == shown
        assert known.retention == (kept or FOR_EVER)
    await keep(storage, KEPT)
    known = await storage.retention(NS)
    assert known is not None
    assert (known.is_set, known.retention) == (True, KEPT)
    assert await storage.set_retention(NS, None)
    known = await storage.retention(NS)
    assert known is not None
    assert (known.is_set, known.retention) == (False, FOR_EVER)
    assert await storage.retention("shop.none") is None
    assert not await storage.set_retention("shop.none", KEPT)
    assert not await storage.begin_sweep("shop.none")


async def test_a_namespace_whose_code_says_times_is_walked_through(storage: Storage) -> None:
    """Nobody has to switch it on."""
    await start(storage)
    options = {"retention": Retention(tasks=DAY).model_dump(mode="json")}
    await storage.register_namespace(NS, options=options, schemas={})
    swept = await storage.sweep(rate=1, now=LATER)
    assert swept is not None
    assert (swept.namespace, swept.tasks) == (NS, 1)


@pytest.mark.parametrize(
    "said",
    [
        '{"tasks": "ninety days"}',
        '{"tasks": "PT1S"}',
        '{"tasks": "P90D", "archive": "s3://old"}',
        '{"tasks": ["P90D"]}',
        '{"events": 0}',
        '{"events": 10000000000000000000000}',
        '{"keys": "P90D"}',
        '"P90D"',
        "[" * 2000 + "]" * 2000,
    ],
)
async def test_code_that_says_what_this_release_cannot_read(
    storage: Storage, tables: Tables, said: str
) -> None:
    """Its namespace keeps everything and shows why; walks of the others go on, and an operator counts."""
    await start(storage)
    await call(storage, at=OLD)
    tables.execute(
        "UPDATE namespaces SET options = jsonb_build_object('retention', %s::jsonb) WHERE name = %s",
        said,
        NS,
    )
    await storage.register_namespace("shop.sound", options={"retention": SAID}, schemas={})
    found = {
        swept.namespace: swept
        for swept in [await storage.sweep(rate=1000, now=LATER + n * SECOND) for n in range(3)]
        if swept is not None
    }
    assert found.keys() == {NS, "shop.sound"}
    assert (found[NS].tasks, found[NS].events, found[NS].is_over) == (0, 0, True)
    assert found["shop.sound"].fault is None
    known = await storage.retention(NS)
    assert known is not None
    assert known.retention == FOR_EVER
    assert known.fault is not None
    assert known.fault == found[NS].fault
    assert len(numbers(tables)) == 2
    await keep(storage, KEPT)
    assert await walk(storage) == (2, 0)
    known = await storage.retention(NS)
    assert known is not None
    assert (known.retention, known.fault) == (KEPT, None)


async def test_times_that_no_operator_can_set(storage: Storage, tables: Tables) -> None:
    """Written by hand: everything is kept, and they are shown as a fault."""
    await start(storage)
    await keep(storage, KEPT)
    tables.execute("UPDATE retention SET tasks = interval '1 second'")
    assert await walk(storage) == (0, 0)
    known = await storage.retention(NS)
    assert known is not None
    assert known.is_set
    assert known.fault is not None


async def test_a_fault_is_logged_once(
    storage: Storage, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """By each sweeper; again if it is another one, or comes back."""
    sweeper = RetentionSweeper(storage, rate=1000, interval=SECOND)
    await start(storage)

    async def said(tasks: str) -> int:
        tables.execute(
            "UPDATE namespaces SET options = jsonb_build_object("
            "'retention', jsonb_build_object('tasks', %s::text)) WHERE name = %s",
            tasks,
            NS,
        )
        caplog.clear()
        for _ in range(2):
            await storage.begin_sweep(NS)
            await sweeper.run_once()
        return [message_of(record) for record in caplog.records].count(FAULT)

    lines = [await said(tasks) for tasks in ("soon", "soon", "PT1S", "P90D", "PT1S")]
    assert lines == [1, 0, 1, 0, 1]


async def test_marks_spare_a_walk_what_is_young(storage: Storage, tables: Tables) -> None:
    """A task that drew its number after a mark is too young for whatever was old at that time."""
    await keep(storage, KEPT, now=OLD)
    await start(storage)
    assert await walk(storage, now=OLD) == (0, 0)
    await call(storage, at=OLD + HOUR)
    for at in (OLD + HOUR, OLD + HOUR + SECOND, OLD + 95 * DAY):
        await walk(storage, now=at)
    marks = tables.execute("SELECT task_id FROM task_marks ORDER BY marked_at")
    assert len(marks) == 3
    assert numbers(tables) == []


async def test_who_asks_for_what_is_deleted(storage: Storage) -> None:
    """Is told so, and not that it was lost."""
    await start(storage)
    step = await hold(storage, request(key="k"), now=OLD)
    await save(storage, step, resume(), now=OLD)
    await keep(storage, KEPT)
    await walk(storage)
    (outcome,) = await storage.replies([step.ref])
    assert outcome is not None
    assert outcome.gone is Gone.SWEPT


async def test_an_estimate(storage: Storage) -> None:
    """Of what would be deleted, by any times; it deletes nothing."""
    await start(storage)
    for _ in range(3):
        await call(storage, at=OLD, emits=2)
    await call(storage, at=YOUNG, emits=2)
    found = await storage.estimate_retention(NS, Retention(tasks=90 * DAY, events=1), now=LATER)
    assert found.is_exact
    assert (found.tasks, found.old_tasks, found.events, found.old_events) == (5, 4, 8, 7)
    assert found.old_task_bytes > 0 < found.old_event_bytes
    nothing = await storage.estimate_retention(NS, FOR_EVER, now=LATER)
    assert (nothing.tasks, nothing.old_tasks, nothing.events, nothing.old_events) == (5, 0, 8, 0)
