"""Timers survive a break: they are held, and come back with the repair."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from progressor import Engine, SetTimer
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import (
    NS,
    Act,
    Scripted,
    timers,
    until,
    until_events,
    until_status,
    until_waiting,
)

MANY = 300
NAMES = [f"p{place}" for place in range(MANY)]


async def break_all(engine: Engine, scripted: Scripted) -> None:
    """Processes whose timers are due when a bug in a call breaks them: the calls wait for their inits."""
    client = engine.client
    starting = [asyncio.create_task(client.start(NS, name, Act(gate="init", after=0))) for name in NAMES]
    await scripted.gates["init"].entered(by=MANY)
    await asyncio.gather(*(client.notify(NS, name, "act", Act(fail="a bug")) for name in NAMES))
    scripted.gates["init"].open()
    await asyncio.gather(*starting)
    for name in NAMES:
        await until_status(client, name, "error")


async def repair_all(engine: Engine) -> None:
    """As docs/how-to/errors-and-repair.md says."""
    client, cursor = engine.client, None
    while True:
        page = await client.search(namespace=NS, status="error", limit=100, cursor=cursor)
        for process in page.items:
            await client.simple_repair(NS, process.process_id)
        cursor = page.cursor
        if cursor is None:
            break


async def test_many_are_repaired_and_all_timers_fire(engine: MakeEngine) -> None:
    """After a bug that broke hundreds, and their repair, none has lost its timer."""
    scripted = Scripted(concurrency=MANY)
    running = await engine(scripted.namespace)
    await break_all(running, scripted)
    assert [ran for ran in scripted.ran if ran[1] == "timeout"] == []
    await repair_all(running)
    for name in NAMES:
        await until_events(running.client, name, "fired")
    assert sorted(ran for ran in scripted.ran if ran[1] == "timeout") == sorted(
        (name, "timeout") for name in NAMES
    )


@pytest.mark.parametrize("simple", [True, False])
async def test_the_timer_comes_back_at_its_own_time(serve: MakeClient, simple: bool) -> None:
    """A break and its repair move no timer."""
    client = await serve(Scripted().namespace)
    at = datetime.now(UTC) + timedelta(hours=1)
    await client.start(NS, "p", Act(at=at))
    await client.notify(NS, "p", "act", Act(fail="oops"))
    await until_status(client, "p", "error")
    (held,) = await timers(client, "p")
    await (client.simple_repair(NS, "p") if simple else client.repair(NS, "p", Act()))
    (back,) = await timers(client, "p")
    assert (held.status, back.status) == ("held", "waiting")
    assert held.scheduled_time == back.scheduled_time == at


async def test_a_held_timer_is_removed_with_its_process(serve: MakeClient) -> None:
    """Nothing is left of a broken process that is removed."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(after=3600))
    await client.notify(NS, "p", "act", Act(fail="oops"))
    await until_status(client, "p", "error")
    await client.remove(NS, "p")
    await client.start(NS, "p", Act())
    assert await timers(client, "p") == []


async def test_an_imported_broken_process_has_its_timer(serve: MakeClient) -> None:
    """What is put as broken with a timer fires after its repair, not before."""
    client = await serve(Scripted().namespace)
    await client.put(NS, "p", state={"balance": 5}, status="error", action=SetTimer(after=timedelta(0)))
    (held,) = await timers(client, "p")
    assert held.status == "held"
    await client.simple_repair(NS, "p")
    await until_events(client, "p", "fired")


async def test_a_removal_that_is_held(serve: MakeClient) -> None:
    """A process that broke before it would be removed is removed after its repair."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    starting = asyncio.create_task(client.start(NS, "p", Act(gate="init", remove_after=0)))
    await scripted.gates["init"].entered()
    notifying = asyncio.create_task(client.notify(NS, "p", "act", Act(fail="oops")))
    await until_waiting(client, "p", 1)
    scripted.gates["init"].open()
    await asyncio.gather(starting, notifying)
    await until_status(client, "p", "error")
    await client.simple_repair(NS, "p")
    await until(lambda: client.search(namespace=NS), lambda page: page.items == [])
