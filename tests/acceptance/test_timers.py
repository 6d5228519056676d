"""Timers: set, replaced, unset, blocked under calls, and fired in the order of their microseconds."""

import asyncio
from datetime import timedelta

from progressor import Engine, SetTimer
from tests.acceptance.conftest import MakeClient, Options
from tests.acceptance.support import (
    NS,
    Account,
    Act,
    Scripted,
    start_and_call,
    timers,
    until,
    until_events,
    until_past,
)

MILLISECOND = timedelta(milliseconds=1)


async def test_a_timer_fires_and_may_set_the_next(serve: MakeClient) -> None:
    """The timeout handler runs when the timer is due, and can go on with another one."""
    client = await serve(Scripted().namespace)
    then = Act(emit="second", after=0.02, then=Act(emit="third"))
    await client.start(NS, "p", Act(emit="first", after=0.02, then=then))
    await until_events(client, "p", "first", "second", "third")
    fired = await timers(client, "p")
    assert [timer.status for timer in fired] == ["finished", "finished"]
    assert all(timer.running_time >= timer.scheduled_time for timer in fired)


async def test_a_timer_at_a_given_time(serve: MakeClient) -> None:
    """`set_timer(at=…)` fires at that time, to the microsecond in the trace; a past one at once."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    created_at = (await client.get(NS, "p")).created_at
    at = created_at + timedelta(milliseconds=150, microseconds=7)
    await client.call(NS, "p", "act", Act(at=at))
    await until_events(client, "p", "fired")
    await client.call(NS, "p", "act", Act(at=created_at - timedelta(days=400)))
    await until_events(client, "p", "fired", "fired")
    assert [timer.scheduled_time for timer in await timers(client, "p")] == [
        at, created_at - timedelta(days=400),
    ]  # fmt: skip


async def test_setting_a_timer_replaces_the_old_one(serve: MakeClient) -> None:
    """A process has one timer: a new one cancels the old, which never fires."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    calling = await start_and_call(
        client,
        scripted,
        Act(after=0.05, then=Act(emit="fired")),
        Act(after=0.1, emit="replaced"),
    )
    await calling
    await until_events(client, "p", "replaced", "fired")
    first, second = await timers(client, "p")
    assert (first.status, first.running_time) == ("cancelled", None)
    assert second.status == "finished"
    await until_past(client, second.scheduled_time + 100 * MILLISECOND)
    await until_events(client, "p", "replaced", "fired")


async def test_unsetting_a_timer(serve: MakeClient) -> None:
    """After `unset_timer()` the timer never fires, and none is left."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    calling = await start_and_call(client, scripted, Act(after=0.1), Act(unset=True, emit="unset"))
    await calling
    (timer,) = await timers(client, "p")
    assert timer.status == "cancelled"
    await until_past(client, timer.scheduled_time + 200 * MILLISECOND)
    await until_events(client, "p", "unset")


async def test_a_timer_is_blocked_under_a_call_and_keeps_its_time(serve: MakeClient) -> None:
    """A call that says nothing of the timer blocks it while it runs; then it waits for its own time."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=3600))
    (before,) = await timers(client, "p")
    calling = asyncio.create_task(client.call(NS, "p", "act", Act(gate="g", emit="called")))
    await scripted.gates["g"].entered()
    # A handler may begin before its task is committed.
    (under,) = await until(lambda: timers(client, "p"), lambda found: found[0].status == "blocked")
    scripted.gates["g"].open()
    await calling
    (after,) = await timers(client, "p")
    assert [timer.status for timer in (before, under, after)] == ["waiting", "blocked", "waiting"]
    assert {timer.task_id for timer in (before, under, after)} == {before.task_id}
    assert {timer.scheduled_time for timer in (before, under, after)} == {before.scheduled_time}


async def test_a_blocked_timer_fires_at_its_own_time(serve: MakeClient) -> None:
    """A timer that was blocked under a call fires when it is due, not when the call ended."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    calling = await start_and_call(client, scripted, Act(after=0.3), Act(emit="called"))
    await calling
    await until_events(client, "p", "called", "fired")
    (timer,) = await timers(client, "p")
    assert timer.running_time >= timer.scheduled_time


async def test_a_timer_that_fell_due_under_a_call_fires_after_it(serve: MakeClient) -> None:
    """A timer whose time passes while a call runs fires as soon as the call is done."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    calling = await start_and_call(client, scripted, Act(after=0.05), Act(gate="g", emit="called"))
    await scripted.gates["g"].entered()
    (timer,) = await timers(client, "p")
    assert timer.status == "blocked"
    await until_past(client, timer.scheduled_time)
    scripted.gates["g"].open()
    await calling
    await until_events(client, "p", "called", "fired")


async def test_timers_fire_in_the_order_of_their_microseconds(
    dsn: str, mode: Options, client: MakeClient
) -> None:
    """Timers a millisecond and less apart fire in their order, at times exact to the microsecond."""
    dispatcher = await client()
    async with Engine(dsn, [Scripted().namespace], **mode):
        await dispatcher.put(NS, "clock")
    now = (await dispatcher.get(NS, "clock")).created_at
    delays = {"c": 1001, "a": 1, "e": 2001, "b": 2, "d": 1002}
    due = {name: now + timedelta(microseconds=delay) for name, delay in delays.items()}
    for name, at in due.items():
        await dispatcher.put(NS, name, state=Account(), action=SetTimer(at=at))
    scripted = Scripted(concurrency=1)
    async with Engine(dsn, [scripted.namespace], **mode):
        for name, at in due.items():
            await until_events(dispatcher, name, "fired")
            (timer,) = await timers(dispatcher, name)
            assert timer.scheduled_time == at
    assert [name for name, _ in scripted.ran] == ["a", "b", "c", "d", "e"]


async def test_a_chain_of_zero_delays(serve: MakeClient) -> None:
    """Timers with no delay follow each other at once, each a step of its own."""
    client = await serve(Scripted().namespace)
    plan = Act(emit="last")
    for number in range(30, 0, -1):
        plan = Act(emit=f"e{number}", after=0, then=plan)
    await client.start(NS, "p", plan)
    await until_events(client, "p", *(f"e{number}" for number in range(1, 31)), "last")


async def test_a_timed_remove(serve: MakeClient) -> None:
    """`set_timer(remove=True)` removes the process at its time, with all it has."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(emit="opened", remove_after=3600))
    assert (await client.trace(NS, "p"))[-1].task_type == "remove"
    await client.call(NS, "p", "act", Act(remove_after=0.05))
    await until(lambda: client.search(namespace=NS), lambda page: not page.items)
    assert await client.start(NS, "p", Act(add=1)) == 1


async def test_a_timed_remove_can_be_replaced(serve: MakeClient) -> None:
    """A timed remove is a timer: another one replaces it."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    calling = await start_and_call(client, scripted, Act(remove_after=0.05), Act(after=0.1))
    await calling
    await until_events(client, "p", "fired")
    assert [t.status for t in await client.trace(NS, "p") if t.task_type == "remove"] == ["cancelled"]
