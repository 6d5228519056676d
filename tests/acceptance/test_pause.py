"""An operator pauses a namespace, and lets it go on."""

import asyncio
from datetime import timedelta

import pytest

from progressor import (
    Engine,
    NamespaceInUse,
    NamespaceNotFound,
    ProcessAlreadyExists,
    ReplyTimeout,
    SetTimer,
    SyncClient,
)
from tests.acceptance.conftest import MakeClient, MakeEngine, Options
from tests.acceptance.support import NS, Act, Scripted, until


async def test_a_pause_lets_steps_finish_and_begins_none(serve: MakeClient) -> None:
    """A call that runs is answered; what was accepted meanwhile runs after the resume, in its order."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(add=1))
    running = asyncio.create_task(client.call(NS, "p", "act", Act(add=1, gate="open")))
    await scripted.gates["open"].entered()
    await client.pause(NS)
    await client.notify(NS, "p", "act", Act(add=1))
    waiting = asyncio.create_task(client.call(NS, "p", "act", Act(add=1)))
    started = asyncio.create_task(client.start(NS, "q", Act(add=7)))
    scripted.gates["open"].open()
    assert await running == 2
    with pytest.raises(ReplyTimeout, match=f"namespace '{NS}' is paused") as late:
        await client.call(NS, "p", "act", Act(add=1), timeout=2)
    assert late.value.paused
    assert not waiting.done()
    assert not started.done()
    assert scripted.ran.count(("p", "call")) == 1
    await client.resume(NS)
    assert await waiting >= 4
    assert await started == 7
    assert await client.call(NS, "p", "act", Act(add=1)) == 6


async def test_timers_wait_for_the_resume(serve: MakeClient) -> None:
    """One that fell due during the pause runs then; a get during a paused init says why it waits."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.pause(NS)
    due = SetTimer(after=timedelta())
    await client.put(NS, "p", state={"then": {"gate": "fired"}}, action=due)
    starting = asyncio.create_task(client.start(NS, "q", Act(add=1)))
    await until(lambda: client.search(namespace=NS, status="init"), lambda page: page.items)
    with pytest.raises(ReplyTimeout, match="is paused") as late:
        await client.get(NS, "q", timeout=2)
    assert late.value.paused
    assert ("p", "timeout") not in scripted.ran
    await client.resume(NS)
    await scripted.gates["fired"].entered()
    scripted.gates["fired"].open()
    assert await starting == 1


async def test_what_is_late_for_another_reason_is_not_said_to_be_paused(serve: MakeClient) -> None:
    """A handler that takes its time."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    with pytest.raises(ReplyTimeout) as late:
        await client.start(NS, "p", Act(gate="shut"), timeout=2)
    assert not late.value.paused
    assert "paused" not in str(late.value)
    scripted.gates["shut"].open()


async def test_a_worker_hears_of_a_resume_at_once(engine: MakeEngine, client: MakeClient) -> None:
    """By a wake, where nobody scans and the next poll is far."""
    scripted = Scripted()
    options = {"scanner": False, "signals": True, "scan_interval": 3600}
    await engine(scripted.namespace, **options)
    dispatcher = await client(signals=True)
    await dispatcher.pause(NS)
    starting = asyncio.create_task(dispatcher.start(NS, "p", Act(add=1)))
    await until(lambda: dispatcher.search(namespace=NS), lambda page: page.items)
    await dispatcher.resume(NS)
    assert await starting == 1


async def test_who_serves_what_and_what_is_paused(engine: MakeEngine, client: MakeClient) -> None:
    """`namespaces`, `workers` and `health` say it."""
    await engine(Scripted("a.first", concurrency=8).namespace, Scripted("b.second").namespace)
    dispatcher = await client()
    await dispatcher.pause("b.second")
    first, second = await dispatcher.namespaces()
    assert (first.name, first.paused, first.workers, first.slots) == ("a.first", False, 1, 8)
    assert (second.name, second.paused, second.workers, second.slots) == ("b.second", True, 1, 100)
    (worker,) = [each for each in await dispatcher.workers() if each.namespaces]
    assert worker.namespaces == ("a.first", "b.second")
    assert worker.is_live
    assert (await dispatcher.health()).paused == ("b.second",)
    await dispatcher.resume("b.second")
    assert (await dispatcher.health()).paused == ()


async def test_what_is_served_or_has_processes_is_not_retired(serve: MakeClient) -> None:
    """The error says what is left."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=1))
    with pytest.raises(NamespaceInUse, match=r"live workers serve it \(1\)") as refused:
        await client.retire(NS)
    assert (refused.value.namespace, refused.value.workers, refused.value.processes) == (NS, 1, 1)


async def test_a_put_into_what_was_retired(
    engine: MakeEngine, client: MakeClient, dsn: str, mode: Options
) -> None:
    """Who used it before is told that it is gone, not that the id is taken; served again, it is known."""
    namespace = Scripted().namespace
    dispatcher = await client()
    # To whom nobody is alive, nor served it of late.
    operator = await client(lease_age=timedelta(microseconds=1))
    async with Engine(dsn, [namespace], **mode):
        await dispatcher.put(NS, "p")
        await dispatcher.remove(NS, "p")
    await operator.retire(NS)
    for _ in range(2):
        with pytest.raises(NamespaceNotFound):
            await dispatcher.put(NS, "p")
    await engine(namespace)
    await dispatcher.put(NS, "p")
    with pytest.raises(ProcessAlreadyExists):
        await dispatcher.put(NS, "p")


async def test_nobody_knows_it(client: MakeClient) -> None:
    """Each of the three refuses a name that no worker ever served."""
    dispatcher = await client()
    for ask in (dispatcher.pause, dispatcher.resume, dispatcher.retire):
        with pytest.raises(NamespaceNotFound):
            await ask("nobody.knows")


async def test_from_code_without_an_event_loop(engine: MakeEngine, dsn: str) -> None:
    """SyncClient has the same methods."""
    await engine(Scripted().namespace)

    def ask() -> list[bool]:
        with SyncClient(dsn) as client:
            client.pause(NS)
            paused = [each.paused for each in client.namespaces()]
            client.resume(NS)
            assert any(NS in each.namespaces for each in client.workers())
            return paused + [each.paused for each in client.namespaces()]

    assert await asyncio.to_thread(ask) == [True, False]


async def test_the_pause_outlives_workers(engine: MakeEngine, client: MakeClient) -> None:
    """A worker that starts while its namespace is paused begins nothing."""
    dispatcher = await client()
    first = await engine(Scripted().namespace)
    await dispatcher.pause(NS)
    await first.stop()
    scripted = Scripted()
    await engine(scripted.namespace)
    starting = asyncio.create_task(dispatcher.start(NS, "p", Act(add=1)))
    await until(lambda: dispatcher.search(namespace=NS), lambda page: page.items)
    assert scripted.ran == []
    await dispatcher.resume(NS)
    assert await starting == 1
