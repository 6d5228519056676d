"""Retention: what is old is deleted, what is needed stays, and nobody waits for it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import psycopg
import pytest

from progressor.config import FOR_EVER, Retention
from progressor.storage.admin import retention as rounds
from progressor.storage.doctor import examine
from progressor.storage.operations import Storage
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


@pytest.fixture(autouse=True)
def sound(dsn: str, storage: Storage) -> object:
    """Whatever a test does, the invariants of the tables hold after it."""
    yield
    assert [each for each in examine(dsn, now=T0).invariants if not each.holds] == []


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


@pytest.mark.parametrize(("looks", "most", "rows"), [(1, 1, 1), (2, 5, 3), (5, 2, 100), (3, 3, 7)])
async def test_a_walk_in_small_rounds(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch, looks: int, most: int, rows: int
) -> None:
    """However small, they delete the same, each once, and come to an end."""
    for name, value in (("_LOOKS", looks), ("_HELD", most), ("_ROWS", rows)):
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


async def test_large_values_are_deleted_in_pieces(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round has a bound in bytes, and deletes one row at least."""
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
    assert found == [2, 1, 1]


async def test_a_process_that_a_step_holds_is_passed_by(storage: Storage, dsn: str, tables: Tables) -> None:
    """A walk waits for nobody; the next one comes by again."""
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
