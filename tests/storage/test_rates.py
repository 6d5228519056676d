"""Rates: no more steps begin than the rate of a namespace, and that of a group, admits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta

import psycopg
import pytest
from psycopg.types.json import Jsonb

from progressor.config import Rate, Rates
from progressor.storage.operations import Storage
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.values import Claimed, TaskRef
from tests.storage.test_damage import REFUSED
from tests.support import (
    MICROSECOND,
    NS,
    SECOND,
    T0,
    WORKER,
    LossyConnections,
    Tables,
    claim_calls,
    eventually,
    hold,
    init,
    number,
    request,
    resume,
    set_timer,
    start,
    wait,
)

# One each second; three at once after a rest.
RATE = Rate(2, per=2 * SECOND, burst=3)
RATES = Rates(all=RATE)
BY_GROUP = Rates(group=RATE, enters=True)


@pytest.fixture(autouse=True)
def namespace(tables: Tables) -> None:
    tables.set_namespace(NS)


async def some(storage: Storage, count: int, *, kind: str = "p", now: datetime = T0) -> None:
    """Let starts wait."""
    for place in range(count):
        await wait(storage, init(f"{kind}{place}", worker_id=None), now=now)


async def begun(
    storage: Storage, limit: int = 100, *, now: datetime | None = T0, rates: Rates = RATES
) -> list[Claimed]:
    """The requests that a claim takes."""
    return await storage.search("calls", NS, limit, worker_id=WORKER, lease=number(), rates=rates, now=now)


async def begun_in_groups(
    storage: Storage, limit: int = 100, *, now: datetime | None = T0, rates: Rates = BY_GROUP
) -> list[Claimed]:
    """What a claim in all groups with room takes."""
    groups = (await storage.groups_with_room(NS, rates=rates, now=now)).group_nos
    return await storage.search_groups(
        NS, limit, groups=groups, worker_id=WORKER, lease=number(), rates=rates, now=now
    )


async def enter(storage: Storage, process_id: str, group: str) -> None:
    """Start a process whose init waits in its group."""
    await wait(storage, init(process_id, worker_id=None))
    (claimed,) = await claim_calls(storage)
    assert await storage.enter_group(claimed.task, group)


def names(claimed: Sequence[Claimed]) -> list[str]:
    return [each.process.process_id for each in claimed]


async def test_no_more_begin_than_the_rate_admits(storage: Storage) -> None:
    """A burst at first, then one for each interval; to the microsecond."""
    await some(storage, 6)
    assert names(await begun(storage)) == ["p0", "p1", "p2"]
    assert await begun(storage) == []
    assert await begun(storage, now=T0 + SECOND - MICROSECOND) == []
    assert names(await begun(storage, now=T0 + SECOND)) == ["p3"]
    assert await begun(storage, now=T0 + SECOND) == []
    assert names(await begun(storage, now=T0 + 3 * SECOND)) == ["p4", "p5"]


async def test_what_was_not_used_is_kept_up_to_the_burst(storage: Storage) -> None:
    """And no more of it, however long nothing began."""
    await some(storage, 8)
    assert len(await begun(storage, 2)) == 2
    assert len(await begun(storage, now=T0 + SECOND)) == 2
    assert len(await begun(storage, now=T0 + timedelta(days=9))) == 3


async def test_a_burst_of_one(storage: Storage) -> None:
    """One after the other, an interval apart."""
    even = Rates(all=Rate(1, per=SECOND, burst=1))
    await some(storage, 3)
    assert len(await begun(storage, rates=even)) == 1
    assert await begun(storage, rates=even, now=T0 + SECOND / 2) == []
    assert len(await begun(storage, rates=even, now=T0 + 1.5 * SECOND)) == 1
    assert await begun(storage, rates=even, now=T0 + 2 * SECOND) == []
    assert len(await begun(storage, rates=even, now=T0 + 2.5 * SECOND)) == 1


async def test_requests_and_timers_are_of_one_rate(storage: Storage) -> None:
    """Those that are claimed by their id too."""
    for name in ("p1", "p2"):
        await start(storage, name, resume() if name == "p1" else set_timer(SECOND))
    call = await wait(storage, request("p1", worker_id=None))
    await some(storage, 1, kind="q")
    now = T0 + SECOND
    mine = {"worker_id": WORKER, "rates": RATES, "now": now}
    timers = await storage.search("timers", NS, 9, lease=number(), **mine)  # type: ignore[arg-type]
    assert names(timers) == ["p2"]
    ref = TaskRef(NS, call.process_no, call.task_id)
    assert await storage.capture_task(ref, lease=number(), **mine) is not None  # type: ignore[arg-type]
    assert names(await begun(storage, now=now)) == ["q0"]
    assert await storage.rests(NS, now=now) == SECOND
    await some(storage, 1, kind="r")
    assert await begun(storage, now=now) == []


async def test_one_by_its_id_waits_too(storage: Storage) -> None:
    """A claim of one task by its id takes it once it is admitted."""
    await some(storage, 3)
    assert len(await begun(storage)) == 3
    await some(storage, 1, kind="q")
    (row,) = await storage._rows("find_process", namespace=NS, process_id="q0")
    task_id = await storage.next_task(row["process_no"])
    assert task_id is not None
    ref = TaskRef(NS, row["process_no"], task_id)
    for now, found in ((T0, False), (T0 + SECOND, True)):
        held = await storage.capture_task(ref, worker_id=WORKER, lease=number(), rates=RATES, now=now)
        assert (held is not None) is found


async def test_how_long_a_namespace_rests(storage: Storage) -> None:
    """Not at all before its first step, nor while anything is left of the burst."""
    assert await storage.rests(NS, now=T0) is None
    await some(storage, 4)
    await begun(storage, 2)
    assert await storage.rests(NS, now=T0) is None
    await begun(storage, 2)
    assert await storage.rests(NS, now=T0) == SECOND
    assert await storage.rests(NS, now=T0 + 0.7 * SECOND) == 0.3 * SECOND
    assert await storage.rests(NS, now=T0 + SECOND) is None


async def test_a_claim_that_finds_nothing_uses_nothing(storage: Storage) -> None:
    """However often it looks."""
    for _ in range(9):
        assert await begun(storage) == []
    await some(storage, 3)
    assert len(await begun(storage)) == 3


async def test_what_is_handed_back_has_used_its_place(storage: Storage) -> None:
    """It begins again once the rate admits it."""
    await some(storage, 4)
    first, *_ = await begun(storage)
    await storage.hand_back([first.task])
    assert await begun(storage) == []
    assert names(await begun(storage, now=T0 + SECOND)) == ["p0"]


async def test_another_rate_holds_from_the_next_claim_on(storage: Storage) -> None:
    """A faster one does not wait for what a slower one has written; a clock that was set back costs one."""
    await some(storage, 6)
    slow = Rates(all=Rate(1, per=timedelta(days=1)))
    assert len(await begun(storage, rates=slow)) == 1
    assert await begun(storage, rates=slow, now=T0 + SECOND) == []
    assert len(await begun(storage, now=T0 + SECOND)) == 1
    assert await begun(storage, now=T0 + SECOND) == []
    assert len(await begun(storage, now=T0 + 2 * SECOND)) == 1
    early = T0 - timedelta(hours=1)
    assert len(await begun(storage, now=early)) == 1
    assert await begun(storage, now=early) == []
    assert len(await begun(storage, now=early + SECOND)) == 1


async def test_a_rate_that_microseconds_do_not_fit(storage: Storage) -> None:
    """It is missed by less than one, and never exceeded."""
    third = Rate(3, per=SECOND, burst=1)
    assert third.interval == timedelta(microseconds=333_334)
    await some(storage, 2)
    assert len(await begun(storage, rates=Rates(all=third))) == 1
    early = T0 + third.interval - MICROSECOND
    assert await begun(storage, rates=Rates(all=third), now=early) == []
    assert len(await begun(storage, rates=Rates(all=third), now=T0 + third.interval)) == 1


async def test_functions_that_are_left_to_others(storage: Storage) -> None:
    """Those that are not left are of the rate."""
    await start(storage, "p1")
    await wait(storage, request("p1", worker_id=None, name="new"))
    await some(storage, 4, kind="q")
    found = await storage.search(
        "calls", NS, 9, worker_id=WORKER, lease=number(), left=["call new"], rates=RATES, now=T0
    )
    assert names(found) == ["q0", "q1", "q2"]


async def test_a_task_that_cannot_be_claimed_uses_nothing(storage: Storage, tables: Tables) -> None:
    """The others are claimed one by one, as many as the rate admits."""
    await start(storage, "bad")
    tables.execute(REFUSED)
    await wait(storage, request("bad", worker_id=None, name="refused"))
    await some(storage, 4)
    assert names(await begun(storage)) == ["p0", "p1", "p2"]


async def test_a_claim_whose_answer_is_lost_is_charged_once(dsn: str, tables: Tables) -> None:
    """Repeated, it finds what its first try took; one that was not committed used nothing."""
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=timedelta(seconds=10))
    await some(storage, 5)
    connections.late = 1
    assert names(await begun(storage, 2)) == ["p0", "p1"]
    connections.early = 1
    assert names(await begun(storage)) == ["p2"]
    assert await begun(storage) == []
    await connections.close()


async def test_who_forgets_a_namespace_forgets_its_rate(storage: Storage, tables: Tables) -> None:
    """Its row goes with that of the namespace."""
    await begun(storage)
    assert len(tables.execute("SELECT next_at = '-infinity' AS unused FROM rates")) == 1
    tables.execute("UPDATE namespaces SET updated_at = %s", T0 - timedelta(days=36500))
    await storage.retire(NS, lease_age=SECOND)
    assert tables.execute("SELECT namespace_no FROM rates") == []


# Groups.


async def test_each_group_has_the_rate(storage: Storage) -> None:
    """What one has used the others have not; the look finds those that may go on, and when others may."""
    for group in ("a", "b"):
        for place in range(4):
            await enter(storage, f"{group}{place}", group)
    assert names(await begun_in_groups(storage)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    look = await storage.groups_with_room(NS, rates=BY_GROUP, now=T0 + 0.2 * SECOND)
    assert (look.group_nos, look.rest) == ([], 0.8 * SECOND)
    assert names(await begun_in_groups(storage, now=T0 + SECOND)) == ["a3", "b3"]
    assert (await storage.groups_with_room(NS, rates=BY_GROUP, now=T0 + SECOND)).rest is None


async def test_a_group_that_is_full_waits_for_room_and_not_for_a_time(
    storage: Storage, tables: Tables
) -> None:
    """The smaller of limit and rate holds."""
    for place in range(5):
        await enter(storage, f"p{place}", "a")
    tables.execute("UPDATE groups SET group_limit = 2")
    first, second = await begun_in_groups(storage)
    look = await storage.groups_with_room(NS, rates=BY_GROUP, now=T0)
    assert (look.group_nos, look.rest) == ([], None)
    for each in (first, second):
        await storage.hand_back([each.task])
    assert len(await begun_in_groups(storage)) == 1
    assert (await storage.groups_with_room(NS, rates=BY_GROUP, now=T0)).rest == SECOND


async def test_a_rate_of_the_namespace_binds_its_groups(storage: Storage) -> None:
    """Together; a claim that is cut by it charges no group for more than it took."""
    both = Rates(all=RATE, group=Rate(2, per=SECOND), enters=True)
    for group in ("a", "b"):
        for place in range(3):
            await enter(storage, f"{group}{place}", group)
    assert names(await begun_in_groups(storage, rates=both)) == ["a0", "a1", "b0"]
    assert await begun_in_groups(storage, rates=both) == []
    assert await storage.rests(NS, now=T0) == SECOND
    assert names(await begun_in_groups(storage, rates=both, now=T0 + SECOND)) == ["a2"]


async def test_an_init_that_enters_its_group_begins_once(storage: Storage) -> None:
    """It is charged as it begins there, not as it is claimed to enter."""
    both = Rates(all=RATE, group=RATE, enters=True)
    await some(storage, 4)
    for _ in range(2):
        for each in await begun(storage, rates=both):
            assert await storage.enter_group(each.task, "acme")
    assert await storage.rests(NS, now=T0) is None
    assert len(await begun_in_groups(storage, rates=both)) == 3
    assert await begun_in_groups(storage, rates=both) == []


async def test_a_task_in_a_group_that_cannot_be_read(storage: Storage, tables: Tables) -> None:
    """The others are claimed, as many as the rate admits."""
    with tables.damaged("tasks"):
        await wait(storage, init("bad", worker_id=None, args=b"large" * 20_000))
        bad = await storage.search("calls", NS, 1, worker_id=WORKER, lease=number(), now=T0)
        await storage.enter_group(bad[0].task, "acme")
        tables.execute(
            "UPDATE tasks SET context = %s WHERE status = 'waiting'",
            b"".join(bytes([n % 251]) * 99 for n in range(600)),
        )
    for place in range(3):
        await enter(storage, f"p{place}", "acme")
    assert names(await begun_in_groups(storage)) == ["p0", "p1"]
    assert await begun_in_groups(storage) == []


async def test_a_look_tells_when_something_may_begin(storage: Storage, tables: Tables) -> None:
    """What waits is counted, but in a group that rests; a namespace without a rate never rests."""
    await some(storage, 4)
    await begun(storage)
    backlog = await storage.backlog(NS, most=9, now=T0)
    assert (backlog.calls.tasks, backlog.rests, backlog.next_room) == (1, None, None)
    options = {"rate": RATE.model_dump(mode="json"), "group_rate": RATE.model_dump(mode="json")}
    tables.execute("UPDATE namespaces SET options = options || %s", Jsonb(options))
    backlog = await storage.backlog(NS, most=9, now=T0)
    assert (backlog.calls.tasks, backlog.rests, backlog.next_room) == (1, SECOND, None)
    await begun(storage, now=T0 + SECOND)
    for place in range(4):
        await enter(storage, f"a{place}", "a")
    late = T0 + 5 * SECOND
    backlog = await storage.backlog(NS, most=9, now=late)
    assert (backlog.calls.tasks, backlog.rests, backlog.next_room) == (1, None, None)
    await begun_in_groups(storage, now=late)
    backlog = await storage.backlog(NS, most=9, now=late)
    assert (backlog.calls.tasks, backlog.rests, backlog.next_room) == (0, None, SECOND)


# Two at once.


async def test_two_claims_wait_for_each_other(dsn: str, storage: Storage, tables: Tables) -> None:
    """The second one counts what the first one took: behind the lock, not before."""
    await some(storage, 4)
    await begun(storage, 1)
    async with await psycopg.AsyncConnection.connect(dsn) as first:
        await first.execute("SELECT FROM progressor.rates FOR NO KEY UPDATE")
        second = asyncio.create_task(begun(storage))
        await eventually(tables.waiting, "it waits")
        await first.execute("UPDATE progressor.rates SET next_at = %s", (T0,))
        await first.commit()
    assert names(await second) == ["p1"]


async def test_two_first_claims_make_one_row(dsn: str, storage: Storage, tables: Tables) -> None:
    """The second one waits for the first, and is bound by it."""
    await some(storage, 4)
    async with await psycopg.AsyncConnection.connect(dsn) as first:
        await first.execute(
            "INSERT INTO progressor.rates SELECT namespace_no, %s FROM progressor.namespaces", (T0,)
        )
        second = asyncio.create_task(begun(storage))
        await eventually(tables.waiting, "it waits")
        await first.commit()
    assert names(await second) == ["p0"]


@pytest.mark.parametrize("rates", [RATES, BY_GROUP], ids=["all", "group"])
async def test_many_workers_claim_at_once(dsn: str, tables: Tables, rates: Rates) -> None:
    """However they come together: in every span no more than limit and burst, and all of it is used."""
    connections = SessionPool(dsn, limit=8)
    storage = Storage(connections, patience=timedelta(seconds=30))
    if rates is RATES:
        await some(storage, 40)
    else:
        for place in range(40):
            await enter(storage, f"p{place}", "acme")
    search = begun if rates is RATES else begun_in_groups
    chance = random.Random(7)
    began: list[datetime] = []
    for half in range(60):
        now = T0 + half * SECOND / 2
        limits = [chance.choice((1, 2, 9)) for _ in range(4)]
        found = await asyncio.gather(*(search(storage, each, now=now, rates=rates) for each in limits))
        began += [now for claimed in found for _ in claimed]
    assert len(began) == RATE.burst + 29
    for first in began:
        in_span = [each for each in began if first <= each <= first + RATE.per]
        assert len(in_span) <= RATE.limit + RATE.burst
    await connections.close()


async def test_steps_of_a_process_are_of_the_rate(storage: Storage) -> None:
    """Also the one that waits while another runs."""
    await start(storage, "p1", resume())
    step = await hold(storage, request("p1"))
    await wait(storage, request("p1", worker_id=None))
    await some(storage, 3, kind="q")
    assert len(await begun(storage)) == 3
    await storage.save_result([step.step(resume(), keeps_slot=False)], now=T0)
    assert await begun(storage) == []
    assert names(await begun(storage, now=T0 + SECOND)) == ["p1"]
