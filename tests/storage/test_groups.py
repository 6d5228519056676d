"""Groups: of each no more than its limit run at once, and what must wait for room is not looked at."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta

import psycopg
import pytest
from psycopg.types.json import Jsonb

from progressor.model import TaskType
from progressor.storage.operations import Storage
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.steps import held as held_tasks
from progressor.storage.values import Claimed, Continue
from progressor.timers import SetTimer
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    T0,
    WORKER,
    Held,
    LossyConnections,
    Tables,
    break_process,
    change_timers,
    check_invariants,
    claim_calls,
    claim_timers,
    collect,
    eventually,
    fail,
    fuse,
    held,
    hold,
    ids,
    init,
    number,
    repair,
    request,
    resume,
    retry,
    save,
    set_timer,
    wait,
)

LIMIT = 2
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def limit(storage: Storage, tables: Tables) -> None:
    """The groups of the namespace have a limit of two."""
    tables.set_namespace(NS)
    set_limit(tables, LIMIT)


def set_limit(tables: Tables, limit: int | None) -> None:
    tables.execute("UPDATE namespaces SET options = options || %s", Jsonb({"group_limit": limit}))


async def enter(storage: Storage, process_id: str, group: str = "acme", *, now: datetime = T0) -> None:
    """Start a process whose init waits in its group."""
    await wait(storage, init(process_id, worker_id=None), now=now)
    (claimed,) = await claim_calls(storage, now=now)
    assert claimed.process.group_no is None
    assert await storage.enter_group(claimed.task, group)


async def found(
    storage: Storage, limit: int = 100, *, now: datetime = T0, worker_id: int = WORKER, lease: int = 0
) -> list[Held]:
    """What a claim in all groups with room takes."""
    groups = (await storage.groups_with_room(NS)).group_nos
    claimed = await storage.search_groups(
        NS, limit, groups=groups, worker_id=worker_id, lease=lease or number(), now=now
    )
    return [held(each) for each in claimed]


async def born(
    storage: Storage, *names: str, group: str = "acme", decision: object = None, now: datetime = T0
) -> None:
    """Make processes of a group, on which nothing waits."""
    for name in names:
        await enter(storage, name, group, now=now)
        (first,) = await found(storage, 1, now=now)
        await save(storage, first, decision or resume(), now=now)  # type: ignore[arg-type]


def running(tables: Tables) -> int:
    (row,) = tables.execute("SELECT count(*) AS count FROM running WHERE group_no IS NOT NULL")
    count: int = row["count"]
    return count


def names(claimed: Sequence[Held]) -> list[str]:
    return [each.process.process_id for each in claimed]


async def test_an_init_enters_its_group_before_it_begins(storage: Storage, tables: Tables) -> None:
    """It waits for room there with its own lease gone, and runs as any other task."""
    await enter(storage, "p1")
    (row,) = tables.schedule()
    assert (row["claimable"], row["held_time"], row["group_no"]) == (False, T0, 1)
    (task,) = tables.tasks()
    assert (task["status"], task["lease"], task["worker_id"], task["attempts_count"]) == (
        "waiting", None, None, None,
    )  # fmt: skip
    assert await claim_calls(storage) == []
    (first,) = await found(storage)
    assert (first.process.group_no, first.task.task_type, first.task.args) == (1, TaskType.INIT, b"args")
    row_of_running = tables.running()
    assert row_of_running is not None
    assert row_of_running["group_no"] == 1
    await save(storage, first, resume())
    assert tables.schedule() == []


async def test_who_lost_the_lease_moves_no_process(storage: Storage, tables: Tables) -> None:
    """Nor does a task that is no init."""
    first = await hold(storage, init("p1"))
    await storage.hand_back([first.task])
    assert not await storage.enter_group(first.task, "acme")
    (again,) = await claim_calls(storage)
    await save(storage, again, resume())
    call = await hold(storage, request("p1"))
    assert not await storage.enter_group(call.task, "acme")
    process = tables.process()
    assert process is not None
    assert process["group_no"] is None


async def test_no_more_than_the_limit_run(storage: Storage, tables: Tables) -> None:
    """The oldest first; room that a step leaves goes to the one that has waited longest."""
    for second, name in enumerate(("p1", "p2", "p3", "p4")):
        await enter(storage, name, now=T0 + second * SECOND)
    first, second = await found(storage)
    assert names([first, second]) == ["p1", "p2"]
    assert await found(storage) == []
    await save(storage, second, resume())
    assert names(await found(storage)) == ["p3"]
    await save(storage, first, resume())
    assert names(await found(storage)) == ["p4"]
    assert running(tables) == LIMIT


async def test_groups_do_not_wait_for_each_other(storage: Storage) -> None:
    """Each has room of its own."""
    for name, group in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")):
        await enter(storage, name, group)
    assert sorted(names(await found(storage))) == ["a1", "a2", "b1"]
    looked = await storage.groups_with_room(NS)
    assert (looked.group_nos, looked.last) == ([], None)
    await enter(storage, "c1", "c")
    assert names(await found(storage)) == ["c1"]


async def test_a_call_waits_for_room(storage: Storage, tables: Tables) -> None:
    """Though a worker has a slot for it, and a process of the group is idle."""
    await born(storage, "p1", "p2", "p3")
    for name in ("p1", "p2", "p3"):
        await wait(storage, request(name))
    assert names(await found(storage)) == ["p1", "p2"]
    await wait(storage, request("p3"))
    assert [row["held_time"] for row in tables.schedule("p3")] == [T0, None]


async def test_an_urgent_request_goes_before_others_of_its_group(storage: Storage, tables: Tables) -> None:
    """Also one behind the first of its mailbox, which is then as urgent."""
    await born(storage, "p1", "p2", "p3", "p4")
    for name in ("p1", "p2", "p3"):
        await wait(storage, request(name))
    await wait(storage, request("p4", priority=1), now=T0 + SECOND)
    await wait(storage, request("p3", priority=2), now=T0 + SECOND)
    assert [row["held_time"] for row in tables.schedule("p3")] == [T0 + SECOND - 2 * MINUTE, None]
    first, second = await found(storage)
    assert {*names([first, second])} == {"p3", "p4"}
    await storage.hand_back([first.task, second.task])
    assert {*names(await found(storage))} == {"p3", "p4"}


async def test_a_start_keeps_its_place_before_what_waits_behind_it(
    storage: Storage, tables: Tables
) -> None:
    """A request without a priority keeps its place, however little urgent the next one is."""
    await wait(storage, init("p1", worker_id=None))
    (claimed,) = await claim_calls(storage)
    await wait(storage, request("p1", priority=-10))
    assert await storage.enter_group(claimed.task, "acme")
    assert [row["held_time"] for row in tables.schedule("p1")] == [T0, None]


async def test_a_group_is_never_fused(storage: Storage) -> None:
    """A worker whose code knows no groups prepares the request, which waits for room."""

    async def none(_held: object) -> list[None]:
        raise AssertionError("it must not run")

    await born(storage, "p1")
    assert await fuse(storage, [request("p1")], none) == [None]


async def test_a_step_in_hand_keeps_its_room(storage: Storage, tables: Tables) -> None:
    """What goes on needs no more; what gives its slot back waits for room again, behind older ones."""
    await born(storage, "p1", "p2", "p3")
    await wait(storage, request("p1"))
    first, second = (await found(storage))[0], await wait(storage, request("p1"))
    await wait(storage, request("p2"))
    await wait(storage, request("p3"))
    saved = await save(storage, first, resume())
    assert saved.continuation is not None
    assert saved.continuation.task_id == second.task_id
    assert running(tables) == 1
    later = await wait(storage, request("p1"), now=T0 + SECOND)
    await save(storage, first.next(saved, resume()), resume(), keeps_slot=False)
    assert names(await found(storage)) == ["p2", "p3"]
    (row,) = tables.schedule("p1")
    assert (row["task_id"], row["held_time"], row["group_no"]) == (later.task_id, T0 + SECOND, 1)


async def test_timers_wait_for_their_time_and_then_for_room(storage: Storage, tables: Tables) -> None:
    """No claim of timers takes them; the one that is due first goes first."""
    await born(storage, "p1", "p2", "p3", decision=set_timer(SECOND))
    assert [row["claimable"] for row in tables.schedule("p1")] == [True]
    assert await storage.queue_timers(NS, limit=9, now=T0) == 0
    now = T0 + SECOND
    assert await claim_timers(storage, now=now) == []
    assert [await storage.queue_timers(NS, limit=2, now=now) for _ in range(3)] == [2, 1, 0]
    claimed = await found(storage, now=now)
    assert names(claimed) == ["p1", "p2"]
    assert {each.task.task_type for each in claimed} == {TaskType.TIMEOUT}
    await save(storage, claimed[0], retry(), now=now)
    assert names(await found(storage, now=now)) == ["p3"]
    (row,) = tables.schedule("p1")
    assert (row["claimable"], row["held_time"]) == (True, None)


async def test_a_call_takes_the_place_of_a_timer_that_waits_for_room(
    storage: Storage, tables: Tables
) -> None:
    """And the timer waits again when the call has ended."""
    several = change_timers(SetTimer(after=SECOND, name="a"), SetTimer(after=2 * SECOND, name="b"))
    await born(storage, "p1", decision=several)
    now = T0 + 2 * SECOND
    await storage.queue_timers(NS, limit=9, now=now)
    await wait(storage, request("p1"), now=now)
    assert [(row["task_type"], row["group_no"]) for row in tables.schedule()] == [
        ("timeout", None), ("timeout", None), ("call", 1),
    ]  # fmt: skip
    (call,) = await found(storage, now=now)
    saved = await save(storage, call, resume(), keeps_slot=False, now=now)
    assert saved.due == T0 + SECOND
    assert await storage.queue_timers(NS, limit=9, now=now) == 1
    (timer,) = await found(storage, now=now)
    assert timer.task.name == "a"


async def test_after_a_pause_a_process_waits_for_room(storage: Storage, tables: Tables) -> None:
    """First for the time, then in its group."""
    await enter(storage, "p1")
    (first,) = await found(storage)
    await wait(storage, request("p1"))
    ended = first.step(resume(), keeps_slot=False)._replace(pause=SECOND)
    await storage.save_result([ended], now=T0)
    (row,) = tables.schedule()
    assert (row["held_time"], row["group_no"]) == (T0 + SECOND, None)
    assert await found(storage, now=T0 + SECOND) == []
    assert await storage.ripen(NS, limit=9, now=T0 + SECOND) == 1
    assert names(await found(storage, now=T0 + SECOND)) == ["p1"]


async def test_what_a_dead_worker_held_leaves_room(storage: Storage, tables: Tables) -> None:
    """Nothing leaks: its tasks end or go back, and the limit can be used up again."""
    tables.set_collector()
    await born(storage, "p1", "p2", "p3", "p4")
    for name in ("p1", "p2", "p3", "p4"):
        await wait(storage, request(name))
    tables.set_namespace(NS, on_zombie="retry")
    set_limit(tables, LIMIT)
    assert len(await found(storage)) == LIMIT
    now = T0 + timedelta(hours=1)
    assert len(await collect(storage, now)) == LIMIT
    assert running(tables) == 0
    (row,) = tables.schedule("p1")
    assert (row["claimable"], row["held_time"], row["group_no"]) == (False, T0, 1)
    assert names(await found(storage, now=now)) == ["p1", "p2"]
    tables.set_namespace(NS, on_zombie="error")
    set_limit(tables, LIMIT)
    await collect(storage, now + timedelta(hours=1))
    assert names(await found(storage, now=now)) == ["p3", "p4"]


async def test_what_is_handed_back_waits_for_room_at_its_place(storage: Storage) -> None:
    """A timer waits for its own time again, which has come."""
    await born(storage, "p1", "p2", "p3", decision=set_timer(SECOND))
    for second, name in enumerate(("p1", "p2", "p3")):
        await wait(storage, request(name), now=T0 + second * SECOND)
    first, _ = await found(storage)
    await storage.hand_back([first.task])
    assert names(await found(storage)) == ["p1"]


async def test_a_repair_waits_for_room_too(storage: Storage, tables: Tables) -> None:
    """One without a handler takes none; an init that broke its process waits again."""
    await born(storage, "p1", "p2", "p3")
    broken = [await wait(storage, request(name)) for name in ("p1", "p2")]
    for each in await found(storage):
        await save(storage, each, fail())
    assert len(broken) == LIMIT
    for name in ("p1", "p2"):
        await wait(storage, repair(name))
    await wait(storage, request("p3"))
    assert names(await found(storage)) == ["p1", "p2"]
    await enter(storage, "p4", "other")
    (unborn,) = await found(storage)
    await save(storage, unborn, fail())
    await storage.simple_repair([repair("p4", worker_id=None)], now=T0)
    (row,) = tables.schedule("p4")
    assert (row["claimable"], row["held_time"], row["group_no"]) == (False, T0, 2)
    assert names(await found(storage)) == ["p4"]


async def test_limits_of_groups(storage: Storage, tables: Tables) -> None:
    """A group has the limit of its namespace, or its own, or none; a paused namespace takes nothing."""
    for name in ("p1", "p2", "p3", "p4", "p5", "p6"):
        await enter(storage, name)
    tables.execute("UPDATE groups SET group_limit = 3")
    assert len(await found(storage)) == 3
    tables.execute("UPDATE groups SET group_limit = 1")
    assert await found(storage) == []
    tables.execute("UPDATE groups SET group_limit = NULL")
    set_limit(tables, None)
    tables.execute("UPDATE namespaces SET paused = TRUE")
    assert await found(storage) == []
    tables.execute("UPDATE namespaces SET paused = FALSE")
    assert len(await found(storage)) == 3


async def test_groups_as_an_operator_sees_them(storage: Storage) -> None:
    """By name, each with its limit, what runs and what waits; also one that nobody has entered."""
    for name in ("a1", "a2", "a3"):
        await enter(storage, name, "a")
    await found(storage)
    assert await storage.set_group_limit(NS, "b", 0)
    first, second = await storage.groups(NS, now=T0 + SECOND)
    assert (first.name, first.limit, first.has_own_limit) == ("a", LIMIT, False)
    assert (first.running, first.waiting, first.age) == (2, 1, SECOND)
    assert (second.name, second.limit, second.has_own_limit) == ("b", 0, True)
    assert (second.running, second.waiting, second.age) == (0, 0, timedelta(0))
    await enter(storage, "b1", "b")
    assert await found(storage) == []
    assert await storage.set_group_limit(NS, "b", None)
    assert names(await found(storage)) == ["b1"]
    assert [each.name for each in await storage.groups(NS, limit=1)] == ["a"]
    assert [each.name for each in await storage.groups(NS, after="a")] == ["b"]
    assert not await storage.set_group_limit("nobody.knows", "a", 1)


async def test_a_scanner_counts_groups_with_room(storage: Storage) -> None:
    """One task of each: a worker is then woken for calls. A full group needs none."""
    for name, group in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")):
        await enter(storage, name, group)
    backlog = await storage.backlog(NS, most=10, now=T0 + SECOND)
    assert (backlog.calls.tasks, backlog.calls.age) == (2, SECOND)
    assert (await storage.waiting(NS)).requests == 4
    await found(storage)
    assert (await storage.backlog(NS, most=10, now=T0)).calls.tasks == 0


async def test_looks_go_around_all_groups(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look reaches so many groups, and says where the next one goes on."""
    monkeypatch.setattr(held_tasks, "_GROUPS", 2)
    for name in ("a", "b", "c"):
        await enter(storage, f"{name}1", name)
    first = await storage.groups_with_room(NS)
    assert (first.group_nos, first.last) == ([1, 2], 2)
    second = await storage.groups_with_room(NS, after=2)
    assert (second.group_nos, second.last) == ([3], None)


async def test_a_look_where_steps_have_ended(storage: Storage, tables: Tables) -> None:
    """Of these groups those that have room and tasks that wait for it; none in a paused namespace."""
    for name, group in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c")):
        await enter(storage, name, group)
    assert (await storage.room_in_groups(NS, [1, 2, 7])).group_nos == [1, 2]
    first, *_ = await found(storage)
    assert (await storage.room_in_groups(NS, [1, 2, 3])).group_nos == []
    await save(storage, first, resume())
    assert (await storage.room_in_groups(NS, [3, 2, 1])).group_nos == [1]
    tables.execute("UPDATE namespaces SET paused = TRUE")
    assert (await storage.room_in_groups(NS, [1, 2, 3])).group_nos == []


async def test_a_claim_whose_answer_is_lost_takes_no_more(dsn: str, tables: Tables) -> None:
    """Repeated, it finds what its first try took."""
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=timedelta(seconds=10))
    for name in ("p1", "p2", "p3"):
        await enter(storage, name)
    connections.spared, connections.late = 1, 1
    assert names(await found(storage)) == ["p1", "p2"]
    assert running(tables) == LIMIT
    await connections.close()


async def test_a_task_that_cannot_be_read_holds_up_no_other(storage: Storage, tables: Tables) -> None:
    """It takes room until a zombie collector ends it; the others are claimed."""
    with tables.damaged("tasks"):
        await wait(storage, init("bad", worker_id=None, args=b"large" * 20_000))
        bad = await storage.search("calls", NS, 1, worker_id=WORKER, lease=number(), now=T0)
        await storage.enter_group(bad[0].task, "acme")
        tables.execute(
            "UPDATE tasks SET context = %s WHERE status = 'waiting'",
            b"".join(bytes([n % 251]) * 99 for n in range(600)),
        )
    await enter(storage, "good")
    assert names(await found(storage)) == ["good"]


# Two at once.


async def test_two_claims_of_one_group_wait_for_each_other(
    dsn: str, storage: Storage, tables: Tables
) -> None:
    """The second one counts what the first one took: behind the lock, not before."""
    for name in ("p1", "p2", "p3", "p4"):
        await enter(storage, name)
    groups = (await storage.groups_with_room(NS)).group_nos
    async with await psycopg.AsyncConnection.connect(dsn) as first:
        await first.execute("SELECT FROM progressor.groups FOR NO KEY UPDATE")
        second = asyncio.create_task(
            storage.search_groups(NS, 9, groups=groups, worker_id=WORKER, lease=number(), now=T0)
        )
        await eventually(tables.waiting, "it waits")
        await first.execute(
            """
            INSERT INTO progressor.running
            SELECT s.process_no, 2, s.task_id, 7, %s, s.task_type, s.group_no
            FROM progressor.schedule AS s ORDER BY s.task_id LIMIT 1
            """,
            (T0,),
        )
        await first.commit()
    claimed = await second
    assert [each.process.process_id for each in claimed] == ["p2"]
    tables.execute("DELETE FROM running WHERE lease = 7")


async def test_many_workers_claim_at_once(dsn: str, tables: Tables) -> None:
    """However they come together, no more than the limit are in running, and nobody waits for ever."""
    connections = SessionPool(dsn, limit=8)
    storage = Storage(connections, patience=timedelta(seconds=30))
    for place in range(24):
        await enter(storage, f"p{place}", "acme" if place % 2 else "other")
    most: list[int] = []

    async def work(worker: int) -> int:
        done = 0
        while True:
            mine = await found(storage, 3, worker_id=worker, now=T0)
            most.append(max((row["count"] for row in tables.execute(_BY_GROUP)), default=0))
            if not mine and not tables.execute("SELECT FROM schedule"):
                return done
            for each in mine:
                await save(storage, each, resume())
                done += 1
            await asyncio.sleep(0)

    assert sum(await asyncio.gather(*map(work, range(1, 9)))) == 24
    assert max(most) <= LIMIT
    assert max(most) == LIMIT
    await connections.close()


async def test_workers_that_die_leave_room(dsn: str, tables: Tables) -> None:
    """Fifty workers claim, save and die in any order: never more than the limit run, and after all have
    died all of it can be used."""
    connections = SessionPool(dsn, limit=8)
    storage = Storage(connections, patience=timedelta(seconds=30))
    tables.set_namespace(NS, on_zombie="retry", zombie_attempts=1000)
    set_limit(tables, 5)
    tables.set_collector()
    for place in range(60):
        await enter(storage, f"p{place}")
    chance, dead = random.Random(7), 0
    most = 0

    async def live(worker: int) -> None:
        nonlocal dead, most
        for hours in range(2):
            now = T0 + timedelta(hours=hours)
            mine = await found(storage, chance.choice((1, 3, 9)), worker_id=worker, now=now)
            most = max(most, running(tables))
            for each in mine:
                if chance.random() < 0.4:
                    dead += 1
                elif chance.random() < 0.5:
                    await storage.hand_back([each.task])
                else:
                    await storage.save_result([each.step(resume())], now=now)
            if chance.random() < 0.2:
                await collect(storage, T0 + timedelta(hours=12))
                most = max(most, running(tables))

    await asyncio.gather(*map(live, range(101, 151)))
    assert dead
    assert most == 5
    await collect(storage, T0 + timedelta(hours=24))
    assert running(tables) == 0
    assert len(await found(storage, now=T0 + timedelta(hours=24))) == 5
    await connections.close()


_BY_GROUP = "SELECT count(*) AS count FROM running WHERE group_no IS NOT NULL GROUP BY group_no"


async def test_the_last_that_waits_is_removed_as_room_is_left(
    dsn: str, storage: Storage, tables: Tables
) -> None:
    """The claim passes by what is locked, and takes the one that comes then: no wake is lost, for none is
    kept."""
    await born(storage, "p1", "p2", "p3")
    for name in ("p1", "p2"):
        await wait(storage, request(name))
    first, _ = await found(storage)
    await wait(storage, request("p3"))
    async with await psycopg.AsyncConnection.connect(dsn) as removing:
        await removing.execute("SELECT FROM progressor.processes WHERE process_id = 'p3' FOR UPDATE")
        await save(storage, first, resume())
        assert await found(storage) == []
        await removing.execute("DELETE FROM progressor.processes WHERE process_id = 'p3'")
        await removing.execute("DELETE FROM progressor.schedule")
        await removing.commit()
    await wait(storage, request("p1"), now=T0 + SECOND)
    assert names(await found(storage)) == ["p1"]
    assert running(tables) == LIMIT
    tables.execute("DELETE FROM tasks WHERE process_no NOT IN (SELECT process_no FROM processes)")


async def test_two_at_once_make_one_group(dsn: str, storage: Storage, tables: Tables) -> None:
    """They wait for each other, and both enter it."""
    one, other = await hold(storage, init("p1")), await hold(storage, init("p2"))
    async with await psycopg.AsyncConnection.connect(dsn) as first:
        await first.execute(
            "INSERT INTO progressor.groups (namespace_no, group_key) "
            "SELECT namespace_no, 'acme' FROM progressor.namespaces"
        )
        entering = asyncio.create_task(storage.enter_group(one.task, "acme"))
        await eventually(tables.waiting, "it waits")
        await first.commit()
    assert await entering
    assert await storage.enter_group(other.task, "acme")
    assert {row["group_no"] for row in tables.execute("SELECT group_no FROM processes")} == {1}
    check_invariants(dsn)
    assert ids(await found(storage)) == [one.task.task_id, other.task.task_id]


async def test_what_runs_in_a_group_is_broken_by_a_timer(storage: Storage, tables: Tables) -> None:
    """Processes without a group are claimed as ever, beside those of groups."""
    await break_process(storage, "free", by_timer=True)
    await enter(storage, "p1")
    await wait(storage, repair("free", worker_id=None))
    assert names(await claim_calls(storage, worker_id=OTHER_WORKER)) == ["free"]
    assert names(await found(storage)) == ["p1"]
    assert isinstance(held(Claimed(*(await _again(storage)))), Held)


async def _again(storage: Storage) -> Continue:
    await storage.prepare_init([init("more", worker_id=None)], now=T0)
    (more,) = await claim_calls(storage)
    return Continue(more.task, more.process)


async def test_what_lost_its_transaction_waits_for_room_after_its_pause(storage: Storage) -> None:
    """Meanwhile another process of its group has its place."""
    await enter(storage, "p1")
    await enter(storage, "p2")
    (step,) = await found(storage, 1)
    await storage.hand_back_unsaved(step.task, SECOND, "lost", now=T0)
    (other,) = await found(storage)
    assert other.task.process_id == "p2"
    await save(storage, other, resume())
    assert await found(storage) == []
    assert await storage.ripen(NS, limit=10, now=T0 + SECOND) == 1
    (again,) = await found(storage, now=T0 + SECOND)
    assert (again.task.task_id, again.task.attempts_count) == (step.task.task_id, 1)
