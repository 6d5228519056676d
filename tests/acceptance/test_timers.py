"""Timers: set, replaced, unset, blocked under calls, and fired in the order of their microseconds."""

import asyncio
from datetime import timedelta

from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import NS, Account, Act, Scripted, timers, until, until_events, until_past

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
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(after=0.15, then=Act(emit="fired")))
    await client.call(NS, "p", "act", Act(after=0.3, emit="replaced"))
    await until_events(client, "p", "replaced", "fired")
    first, second = await timers(client, "p")
    assert (first.status, first.running_time) == ("cancelled", None)
    assert second.status == "finished"
    await until_past(client, second.scheduled_time + 100 * MILLISECOND)
    await until_events(client, "p", "replaced", "fired")


async def test_unsetting_a_timer(serve: MakeClient) -> None:
    """After `unset_timer()` the timer never fires, and none is left."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(after=0.2))
    await client.call(NS, "p", "act", Act(unset=True, emit="unset"))
    (timer,) = await timers(client, "p")
    assert timer.status == "cancelled"
    await until_past(client, timer.scheduled_time + 200 * MILLISECOND)
    await until_events(client, "p", "unset")


async def test_a_timer_is_blocked_under_a_call_and_keeps_its_time(serve: MakeClient) -> None:
    """A call that says nothing of the timer blocks it while it runs; then it fires at its own time."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=0.4))
    (waiting,) = await timers(client, "p")
    calling = asyncio.create_task(client.call(NS, "p", "act", Act(gate="g", emit="called")))
    await scripted.gates["g"].entered()
    (blocked,) = await timers(client, "p")
    assert (waiting.status, blocked.status) == ("waiting", "blocked")
    assert blocked.scheduled_time == waiting.scheduled_time
    scripted.gates["g"].open()
    await calling
    await until_events(client, "p", "called", "fired")
    (fired,) = await timers(client, "p")
    assert (fired.task_id, fired.scheduled_time) == (waiting.task_id, waiting.scheduled_time)


async def test_a_timer_that_fell_due_under_a_call_fires_after_it(serve: MakeClient) -> None:
    """A timer whose time passes while a call runs fires as soon as the call is done."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=0.05))
    calling = asyncio.create_task(client.call(NS, "p", "act", Act(gate="g", emit="called")))
    await scripted.gates["g"].entered()
    (timer,) = await timers(client, "p")
    await until_past(client, timer.scheduled_time)
    scripted.gates["g"].open()
    await calling
    await until_events(client, "p", "called", "fired")


async def test_timers_fire_in_the_order_of_their_microseconds(serve: MakeClient) -> None:
    """Timers a millisecond and less apart fire in their order, at times exact to the microsecond."""
    scripted = Scripted(concurrency=1)
    client = await serve(scripted.namespace)
    await client.put(NS, "clock", state=Account())
    start = (await client.get(NS, "clock")).created_at + timedelta(milliseconds=400)
    delays = {"c": 1001, "a": 1, "e": 2001, "b": 2, "d": 1002}
    for process_id, delay in delays.items():
        await client.start(NS, process_id, Act(at=start + timedelta(microseconds=delay)))
    for process_id, delay in delays.items():
        await until_events(client, process_id, "fired")
        (timer,) = await timers(client, process_id)
        assert timer.scheduled_time == start + timedelta(microseconds=delay)
    fired = [process_id for process_id, kind in scripted.ran if kind == "timeout"]
    assert fired == ["a", "b", "c", "d", "e"]


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
    await client.start(NS, "p", Act(emit="opened", remove_after=0.1))
    assert (await client.trace(NS, "p"))[-1].task_type == "remove"
    await until(lambda: client.search(namespace=NS), lambda page: not page.items)
    assert await client.start(NS, "p", Act(add=1)) == 1


async def test_a_timed_remove_can_be_replaced(serve: MakeClient) -> None:
    """A timed remove is a timer: another one replaces it."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(remove_after=0.2))
    await client.call(NS, "p", "act", Act(after=0.3))
    await until_events(client, "p", "fired")
    assert [t.status for t in await client.trace(NS, "p") if t.task_type == "remove"] == ["cancelled"]
