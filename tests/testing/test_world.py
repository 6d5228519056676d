"""Worlds: the real engine on a real PostgreSQL, whose due times come from a clock of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from progressor import (
    Cron,
    HandlerFailed,
    HistoryRange,
    HistoryTruncated,
    IdempotencyConflict,
    InvalidRequest,
    Monthly,
    Namespace,
    Process,
    Rate,
    Retention,
    RetryPolicy,
    TaskNotFound,
    TaskStatus,
)
from progressor.testing import BrokenInWorld, RunawayWorld, World, WorldError
from tests.support import Tables

START = datetime(2024, 2, 29, 12, 30, 0, 123457, tzinfo=UTC)
DAY = timedelta(days=1)
SHORT = {"heartbeat_interval": timedelta(seconds=0.1), "lease_age": timedelta(seconds=0.5)}


def diary(name: str = "diary", **options: Any) -> tuple[Namespace[list[str]], list[tuple[str, datetime]]]:
    """A namespace whose timer notes the time, fires every so often, and what it noted."""
    namespace: Namespace[list[str]] = Namespace(name, state=list[str], **options)
    noted: list[tuple[str, datetime]] = []

    @namespace.init
    async def begin(process: Process[list[str]], seconds: list[float]) -> None:
        process.state = [str(each) for each in seconds]
        process.set_timer(after=timedelta(seconds=seconds[0]))

    @namespace.timeout
    async def note(process: Process[list[str]]) -> None:
        noted.append((process.process_id, process.now))
        process.emit("noted")
        process.state = process.state[1:]
        if process.state:
            process.set_timer(after=timedelta(seconds=float(process.state[0])))

    @namespace.call
    async def tell(process: Process[list[str]]) -> str:
        return process.now.isoformat()

    return namespace, noted


async def test_what_is_due_runs_in_the_order_of_due_times_each_at_its_own(dsn: str) -> None:
    """A handler's now is the due time to the microsecond, whatever process and namespace it is of."""
    first, noted = diary("first")
    second, noted_there = diary("second")
    async with World(dsn, [first, second], now=START) as world:
        await world.client.start("first", "a", [10, 20])
        await world.client.start("first", "b", [15.000001])
        await world.client.start("second", "c", [12])
        await world.advance(timedelta(seconds=29))
        assert world.now == START + timedelta(seconds=29)
        assert noted == [
            ("a", START + timedelta(seconds=10)),
            ("b", START + timedelta(seconds=15.000001)),
        ]
        assert noted_there == [("c", START + timedelta(seconds=12))]
        await world.advance(to=START + timedelta(seconds=30))
        assert noted[2:] == [("a", START + timedelta(seconds=30))]
        process = await world.client.get("first", "a")
        assert [event.timestamp for event in process.history] == [noted[0][1], noted[2][1]]
        assert (process.created_at, process.timer) == (START, None)


async def test_a_call_runs_at_once_and_now(dsn: str) -> None:
    """Time does not pass for it, and its trace has the world's times."""
    namespace, _ = diary()
    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("diary", "a", [3600])
        await world.advance(timedelta(seconds=60))
        assert await world.client.call("diary", "a", "tell") == world.now.isoformat()
        call = (await world.client.trace("diary", "a"))[-1]
        assert (call.scheduled_time, call.running_time, call.finished_time) == (world.now,) * 3


async def test_a_request_that_is_not_awaited_is_run_by_the_next_advance(dsn: str) -> None:
    """The advance begins it at the old time, and goes on when it is through."""
    namespace, _ = diary()
    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("diary", "a", [3600])
        told = asyncio.create_task(world.client.call("diary", "a", "tell"))
        await world.advance(DAY)
        assert await told == START.isoformat()


async def test_a_step_that_waits_holds_the_clock(dsn: str) -> None:
    """Neither it nor an advance by 800 years makes a zombie of it: leases pass in real time."""
    namespace: Namespace[Any] = Namespace("slow")
    gate, begun = asyncio.Event(), asyncio.Event()

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        begun.set()
        await gate.wait()
        process.set_timer(after=DAY)

    @namespace.timeout
    async def end(process: Process[Any]) -> None:
        process.emit("ended", at=process.now.isoformat())

    async with World(dsn, [namespace], now=START, **SHORT) as world:
        starting = asyncio.create_task(world.client.start("slow", "a"))
        await begun.wait()
        advance = asyncio.create_task(world.advance(DAY * 365 * 800))
        with pytest.raises(TimeoutError):
            # Three times the lease: the step goes on, and time stands still.
            await asyncio.wait_for(asyncio.shield(advance), 1.5)
        assert world.now == START
        gate.set()
        await advance
        await starting
        assert world.now == START + DAY * 365 * 800
        process = await world.client.get("slow", "a")
        assert [event.payload for event in process.history] == [{"at": (START + DAY).isoformat()}]


async def test_leases_and_heartbeats_pass_in_real_time(dsn: str, tables: Tables) -> None:
    """Whatever time it is in the world, its worker was seen just now."""
    namespace, _ = diary()
    async with World(dsn, [namespace], now=START - DAY * 365 * 900, **SHORT) as world:
        await world.client.start("diary", "a", [1])
        await world.advance(DAY * 365 * 800)
        (row,) = tables.execute("SELECT now() - seen_at AS age FROM progressor.workers")
        assert timedelta(0) <= row["age"] < timedelta(seconds=20)
        assert (await world.client.health()).workers == 1


async def test_two_worlds_do_not_see_each_others_clock(dsn: str, second_dsn: str) -> None:
    """One process, two databases, the same namespace."""
    namespace, noted = diary()
    async with World(dsn, [namespace], now=START) as one, World(second_dsn, [namespace]) as two:
        await asyncio.gather(one.client.start("diary", "one", [60]), two.client.start("diary", "two", [60]))
        before = two.now
        await asyncio.gather(one.advance(DAY), two.advance(timedelta(seconds=59)))
        assert noted == [("one", START + timedelta(seconds=60))]
        assert (one.now, two.now) == (START + DAY, before + timedelta(seconds=59))
        assert abs(before - datetime.now(UTC)) < timedelta(minutes=1)


async def test_retries_come_at_the_times_of_the_policy(dsn: str) -> None:
    """To the microsecond: the policy has no jitter."""
    policy = RetryPolicy(
        initial_interval=timedelta(seconds=1.5),
        backoff_coefficient=3,
        max_interval=timedelta(minutes=2),
        max_attempts=7,
    )
    namespace: Namespace[Any] = Namespace("flaky", retry_policy=policy)
    tried: list[datetime] = []

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        process.set_timer(after=DAY)

    @namespace.timeout
    async def fail(process: Process[Any]) -> None:
        tried.append(process.now)
        if len(tried) < 7:
            raise RuntimeError("not yet")

    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("flaky", "a")
        await world.advance(DAY * 2)
    waits = (1.5, 4.5, 13.5, 40.5, 120, 120)
    assert [later - earlier for earlier, later in pairwise(tried)] == [
        timedelta(seconds=each) for each in waits
    ]
    assert tried[0] == START + DAY


@pytest.fixture
def brittle() -> Iterator[Namespace[Any]]:
    """Timer and calls of it fail for good."""
    namespace: Namespace[Any] = Namespace("brittle", retry_policy=RetryPolicy(max_attempts=1))

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        process.set_timer(after=DAY)

    @namespace.timeout
    async def fail(process: Process[Any]) -> None:
        raise ZeroDivisionError("by the timer")

    @namespace.call
    async def crash(process: Process[Any]) -> None:
        raise ZeroDivisionError("by the call")

    return namespace


async def test_an_advance_in_which_a_process_breaks_says_so_at_its_end(
    dsn: str, brittle: Namespace[Any]
) -> None:
    """With the traceback of its handler; all else has run, and later advances do not repeat it."""
    namespace, noted = diary()
    async with World(dsn, [brittle, namespace], now=START) as world:
        await world.client.start("brittle", "a")
        await world.client.start("diary", "b", [2 * DAY.total_seconds()])
        with pytest.raises(
            BrokenInWorld, match=r"(?s)brittle/a' broke.*Traceback.*in fail.*by the timer"
        ) as caught:
            await world.advance(DAY * 3)
        assert [each[:3] for each in caught.value.processes] == [
            ("brittle", "a", "ZeroDivisionError: by the timer")
        ]
        assert noted == [("b", START + DAY * 2)]
        assert world.now == START + DAY * 3
        await world.advance(DAY)
        assert [each.process_id for each in await world.broken()] == ["a"]


async def test_a_broken_notice_has_no_caller_either(dsn: str, brittle: Namespace[Any]) -> None:
    """While the caller of a call gets its error, which the advance does not repeat."""
    async with World(dsn, [brittle], now=START) as world:
        for each in ("a", "b"):
            await world.client.start("brittle", each)
        await world.client.notify("brittle", "a", "crash")
        with pytest.raises(BrokenInWorld, match="by the call"):
            await world.settle()
        with pytest.raises(HandlerFailed):
            await world.client.call("brittle", "b", "crash")
        await world.settle()
        assert [each.process_id for each in await world.broken()] == ["a", "b"]


@pytest.mark.parametrize(("year", "repaired"), [(2024, 1), (2824, 0)])
async def test_a_bulk_repairs_what_broke_before_the_present(
    dsn: str, brittle: Namespace[Any], year: int, repaired: int
) -> None:
    """Bulks are in real time: what breaks in a world of the future breaks after the bulk was made."""
    async with World(dsn, [brittle], now=START.replace(year=year)) as world:
        await world.client.start("brittle", "a")
        with pytest.raises(BrokenInWorld):
            await world.advance(DAY)
        bulk = await world.client.repair_all("brittle", simple=True)
        while not bulk.status.is_final:
            await asyncio.sleep(0.02)
            bulk = await world.client.bulk(bulk.bulk_id)
        assert bulk.repaired == repaired


@pytest.mark.parametrize("apart", [timedelta(0), timedelta(microseconds=1)])
async def test_a_runaway_ends_with_its_name(dsn: str, apart: timedelta) -> None:
    """Timers that are due at once, or nearly so, for ever: the advance says which, and where it stopped."""
    namespace: Namespace[Any] = Namespace("runaway")

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        process.set_timer(after=DAY)

    @namespace.timeout
    async def again(process: Process[Any]) -> None:
        process.set_timer(after=apart)

    async with World(dsn, [namespace], now=START, most_steps=200) as world:
        await world.client.start("runaway", "a")
        with pytest.raises(
            RunawayWorld, match=r"more than 200 steps.*timeout on 'runaway/a' at 2024-03-01"
        ):
            await world.advance(DAY * 2)


async def test_a_hundred_timers_at_one_moment_all_run_then(dsn: str) -> None:
    """More than there are slots."""
    namespace, noted = diary(concurrency=5)
    async with World(dsn, [namespace], now=START) as world:
        await asyncio.gather(*(world.client.start("diary", f"p{each}", [60]) for each in range(100)))
        await world.advance(timedelta(seconds=60))
        assert len(noted) == 100
        assert {at for _, at in noted} == {START + timedelta(seconds=60)}


async def test_timers_overdue_are_found_by_the_clock_of_the_world(dsn: str) -> None:
    """Also by the searches, which are other statements than those of steps."""
    namespace, _ = diary()
    async with World(dsn, [namespace], now=START + DAY * 365 * 100) as world:
        await world.client.start("diary", "a", [60])
        assert str((await world.client.get("diary", "a")).timer.status) == "waiting"  # type: ignore[union-attr]
        assert (await world.client.search(timer="overdue")).items == []
        await world.client.pause("diary")
        await world.advance(timedelta(seconds=61))
        assert [each.process_id for each in (await world.client.search(timer="overdue")).items] == ["a"]
        await world.client.resume("diary")
        await world.settle()
        assert (await world.client.search(timer="overdue")).items == []


async def test_what_a_world_refuses(dsn: str) -> None:
    """Time that goes back, no time, two times at once, and an advance in an advance."""
    namespace, _ = diary()
    with pytest.raises(InvalidRequest, match="now must be an aware datetime"):
        World(dsn, [namespace], now=datetime(2024, 1, 1))
    async with World(dsn, [namespace], now=START) as world:
        for bad, match in (
            ({}, "takes a timedelta, or to="),
            ({"by": DAY, "to": START}, "takes a timedelta, or to="),
            ({"by": 3}, "must be a timedelta, not int"),
            ({"by": -DAY}, "goes forward only"),
            ({"to": START - DAY}, "goes forward only"),
        ):
            with pytest.raises(InvalidRequest, match=match):
                await world.advance(**bad)  # type: ignore[arg-type]
        advance = asyncio.create_task(world.advance(DAY))
        await asyncio.sleep(0)
        with pytest.raises(WorldError, match="being advanced"):
            await world.settle()
        await advance


async def test_a_due_task_that_another_session_holds_is_named_after_a_while(
    dsn: str, tables: Tables
) -> None:
    """The advance neither hangs for good nor skips it; once the row is free it runs."""
    namespace, noted = diary()
    async with World(dsn, [namespace], now=START, patience=timedelta(seconds=0.5)) as world:
        await world.client.start("diary", "a", [60])
        with tables.connection.transaction():
            tables.connection.execute("SELECT FROM progressor.processes FOR UPDATE")
            with pytest.raises(WorldError, match="cannot be claimed"):
                await world.advance(DAY)
        await world.advance(DAY)
        assert noted == [("a", START + timedelta(seconds=60))]
        entries = await world.client.trace("diary", "a")
        assert {entry.status for entry in entries} == {TaskStatus.FINISHED}


async def test_what_a_retention_keeps_no_longer_is_gone(dsn: str) -> None:
    """By the clock of the world: events, answers and keys; each step finds what is left at its time."""
    year, left = timedelta(days=365), []
    meters: Namespace[int] = Namespace(
        "meters", state=int, history=HistoryRange(), retention=Retention(tasks=timedelta(days=90), events=3)
    )

    @meters.init
    async def begin(process: Process[int]) -> None:
        process.state = 0
        process.set_timer(every=timedelta(days=30))

    @meters.timeout
    async def read(process: Process[int]) -> None:
        process.state += 1
        left.append(len(process.history))
        process.emit("read", total=process.state)

    @meters.call
    async def reading(process: Process[int], units: int) -> int:
        return process.state + units

    async with World(dsn, [meters], now=START) as world:
        await world.client.start(begin, "m1")
        receipt = await world.client.submit_call("meters", "m1", "reading", 1000, idempotency_key="k")
        assert await world.client.answer(receipt) == 1000
        await world.advance(timedelta(days=80))
        assert await world.client.answer(receipt) == 1000
        with pytest.raises(IdempotencyConflict):
            await world.client.call(reading, "m1", 2000, idempotency_key="k")
        await world.advance(2 * year + DAY)
        meter = await world.client.get("meters", "m1")
        assert (meter.last_event_id, meter.first_event_id) == (27, 25)
        with pytest.raises(HistoryTruncated):
            await world.client.get("meters", "m1", range=HistoryRange(1))
        with pytest.raises(TaskNotFound) as caught:
            await world.client.answer(receipt)
        assert caught.value.is_deleted
        assert await world.client.call(reading, "m1", 2000, idempotency_key="k") == 2027
        trace = await world.client.trace("meters", "m1")
        assert all(entry.scheduled_time > world.now - timedelta(days=91) for entry in trace)
    assert left[:4] == [0, 1, 2, 3]
    assert set(left[4:]) == {3}


async def test_what_comes_every_month_for_three_years(dsn: str) -> None:
    """On the last day of each month at nine in Berlin, whatever the clock does there; nothing is missed."""
    namespace: Namespace[list[str]] = Namespace("monthly", state=list[str])

    @namespace.init
    async def begin(process: Process[list[str]]) -> None:
        process.state = []
        process.set_timer("invoice", every=Monthly(31, at=time(9), tz="Europe/Berlin"))

    @namespace.timeout("invoice")
    async def invoice(process: Process[list[str]]) -> None:
        assert (process.task.nominal, process.task.missed) == (process.now, 0)
        process.state.append(f"{process.now.astimezone(ZoneInfo('Europe/Berlin')):%Y-%m-%d %H:%M}")

    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("monthly", "a")
        await world.advance(timedelta(days=3 * 365))
        state = (await world.client.get("monthly", "a")).state
    assert len(state) == 36
    assert state[:3] == ["2024-03-31 09:00", "2024-04-30 09:00", "2024-05-31 09:00"]
    assert {each[-5:] for each in state} == {"09:00"}
    assert "2025-02-28 09:00" in state


@pytest.mark.parametrize(
    ("catch_up", "late", "passed"), [("one", [239], 0), ("all", [0] * 240, 0), ("skip", [], 240)]
)
async def test_what_a_pause_leaves_behind(dsn: str, catch_up: Any, late: list[int], passed: int) -> None:
    """A namespace that was paused over many times goes on by the rule's catch_up."""
    namespace: Namespace[list[int]] = Namespace("hourly", state=list[int])

    @namespace.init
    async def begin(process: Process[list[int]]) -> None:
        process.state = []
        process.set_timer("tick", every=Cron("0 * * * *"), catch_up=catch_up)

    @namespace.timeout("tick")
    async def tick(process: Process[list[int]]) -> None:
        process.state.append(process.task.missed)

    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("hourly", "a")
        await world.client.pause("hourly")
        await world.advance(10 * DAY)
        assert (await world.client.get("hourly", "a")).state == []
        await world.client.resume("hourly")
        await world.settle()
        assert (await world.client.get("hourly", "a")).state == late
        await world.advance(timedelta(hours=2))
        assert (await world.client.get("hourly", "a")).state == [*late, passed, 0]


def errand() -> tuple[Namespace[list[str]], list[tuple[str, datetime]]]:
    """Processes that pass a message on, each once a timer has fired."""
    namespace: Namespace[list[str]] = Namespace("errand", state=list[str])
    got: list[tuple[str, datetime]] = []

    @namespace.init
    async def begin(process: Process[list[str]], way: list[str]) -> None:
        process.state = way
        process.set_timer(after=DAY)

    @namespace.timeout
    async def go(process: Process[list[str]]) -> None:
        for each in process.state:
            target, _, name = each.partition(" ")
            if name:
                process.send("errand", target, name, process.process_id)
            else:
                process.send_start("errand", target, [f"{process.process_id} hear"])

    @namespace.call
    async def hear(process: Process[list[str]], sender: str) -> None:
        got.append((f"{sender} to {process.process_id}", process.now))

    return namespace, got


async def test_messages_are_delivered_at_the_time_of_their_steps(dsn: str) -> None:
    """A start and a notice run at the very moment at which they were sent, and so does what follows."""
    namespace, got = errand()
    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("errand", "b", [])
        await world.client.start("errand", "a", ["b hear", "child"])
        await world.advance(3 * DAY)
        assert got == [("a to b", START + DAY), ("child to a", START + 2 * DAY)]


async def test_a_message_that_nobody_takes_ends_after_a_day(dsn: str, tables: Tables) -> None:
    """It is tried again in virtual time; the world comes to rest, then and after it."""
    namespace: Namespace[None] = Namespace("hopeful")

    @namespace.init
    async def begin(process: Process[None]) -> None:
        process.send_start("nobody.serves", "it")

    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("hopeful", "a")
        await world.settle()
        assert len(tables.execute("SELECT n FROM outbox")) == 1
        await world.advance(2 * DAY)
        assert tables.execute("SELECT n FROM outbox") == []
        assert world.now == START + 2 * DAY


@pytest.mark.parametrize("of_group", [False, True], ids=["all", "group"])
async def test_what_a_rate_does_not_admit_begins_when_it_does(dsn: str, of_group: bool) -> None:
    """At its exact time, however far that is; requests and timers alike."""
    rate = Rate(1, per=DAY, burst=2)
    limits: dict[str, Any] = {"group": lambda _: "acme", "group_rate": rate} if of_group else {"rate": rate}
    namespace, noted = diary(**limits)
    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("diary", "p", [30.0])
        for _ in range(2):
            await world.client.notify("diary", "p", "tell")
        await world.settle()
        await world.advance(timedelta(minutes=1))
        assert noted == []
        await world.advance(timedelta(days=1))
        trace = await world.client.trace("diary", "p")
        began = [None if each.running_time is None else each.running_time - START for each in trace]
        assert sorted(each for each in began if each is not None) == [timedelta(0), timedelta(0), DAY]
        await world.advance(timedelta(days=2))
        assert [moment for _, moment in noted] == [START + 2 * DAY]
        trace = await world.client.trace("diary", "p")
        assert [each.running_time for each in trace].count(None) == 0


async def test_a_world_is_quiet_while_a_rate_lets_it_rest(dsn: str) -> None:
    """A call that waits for it is answered by an advance, each at its own time."""
    namespace, _ = diary(rate=Rate(2, per=timedelta(seconds=1), burst=1))
    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("diary", "p", [9.0])
        calls = [asyncio.create_task(world.client.call("diary", "p", "tell")) for _ in range(3)]
        await world.settle()
        assert not any(each.done() for each in calls)
        await world.advance(timedelta(seconds=1))
        assert [each.done() for each in calls].count(True) == 2
        await world.advance(timedelta(seconds=1))
        answers = sorted(map(datetime.fromisoformat, await asyncio.gather(*calls)))
        assert answers == [START + timedelta(seconds=0.5) * n for n in (1, 2, 3)]
