"""A least time between two steps of one process, through the public API."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest

from progressor import Client, Engine, InvalidRequest, Namespace, Process, Reject, Rejected, TraceEntry
from tests.acceptance.conftest import MakeClient, MakeEngine, Options
from tests.acceptance.support import NS, Act, Scripted, until

PAUSE = timedelta(milliseconds=150)


def assert_apart(trace: list[TraceEntry], *, steps: int) -> None:
    """Each step began a pause after the end of the one before, by PostgreSQL's clock."""
    ran = sorted((each for each in trace if each.running_time), key=lambda each: each.running_time or 0)
    assert len(ran) == steps
    for before, entry in itertools.pairwise(ran):
        assert before.finished_time is not None
        assert entry.running_time is not None
        assert entry.running_time - before.finished_time >= PAUSE


async def test_requests_and_timers_of_a_process_are_apart(serve: MakeClient) -> None:
    """Whether they wait already when a step ends, come while the process rests, or are due meanwhile."""
    scripted = Scripted(pause=PAUSE)
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(then=Act(add=10), after=0))
    answers = await asyncio.gather(*(client.call(NS, "p", "act", Act(add=1)) for _ in range(3)))
    assert min(answers) >= 1
    await until(lambda: client.get(NS, "p"), lambda process: process.state.balance == 13)
    trace = await until(lambda: client.trace(NS, "p"), lambda found: all(e.finished_time for e in found))
    assert_apart(list(trace), steps=5)


async def test_processes_do_not_wait_for_each_other(serve: MakeClient) -> None:
    """The pause is that of each process, so others begin meanwhile."""
    scripted = Scripted(pause=timedelta(hours=1))
    client = await serve(scripted.namespace)
    for name in ("p", "q", "r"):
        await client.start(NS, name, Act(add=1))
    assert sorted(scripted.ran) == [("p", "init"), ("q", "init"), ("r", "init")]


async def test_a_refused_call_is_a_step_too(serve: MakeClient) -> None:
    """Though it changes nothing."""
    scripted = Scripted(pause=PAUSE)
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    with pytest.raises(Rejected):
        await client.call(NS, "p", "act", Act(reject="no"))
    await client.call(NS, "p", "act", Act())
    assert_apart(list(await client.trace(NS, "p")), steps=3)


async def test_a_step_that_waits_for_a_process_that_rests(serve: MakeClient) -> None:
    """It lends its only slot as soon as that process may go on."""
    scripted = Scripted("bank.slow", pause=PAUSE, concurrency=1)
    asking: Namespace[Any] = Namespace(NS, concurrency=1)
    clients: list[Client] = []

    @asking.init
    async def ask(process: Process[Any]) -> int:
        found: int = await clients[0].call("bank.slow", "p", "act", Act(add=1))
        return found

    clients.append(await serve(scripted.namespace, asking))
    await clients[0].start("bank.slow", "p", Act())
    assert await clients[0].start(NS, "asks") == 1


async def test_a_step_in_the_same_namespace_lends_its_slot(engine: MakeEngine) -> None:
    """No claim of the pool releases what is held while all slots are taken: the loan does."""
    namespace: Namespace[Any] = Namespace(NS, concurrency=1, pause=PAUSE)
    clients: list[Client] = []

    @namespace.init
    async def begin(process: Process[Any], of: str | None) -> int:
        if of is None:
            return 0
        found: int = await clients[0].call(NS, of, "add")
        return found

    @namespace.call
    async def add(process: Process[Any]) -> int:
        if process.metadata.get("closed"):
            raise Reject("closed")
        return 7

    clients.append((await engine(namespace)).client)
    await clients[0].start(NS, "p", None)
    assert await clients[0].start(NS, "asks", "p") == 7


async def test_what_is_held_goes_on_in_a_version_without_the_pause(
    engine: MakeEngine, dsn: str, mode: Options
) -> None:
    """Its workers release it when they poll."""
    async with Engine(dsn, [Scripted(pause=PAUSE).namespace], **mode) as before:
        await before.client.start(NS, "p", Act(then=Act(emit="fired"), after=0))
    after = await engine(Scripted().namespace)
    await until(lambda: after.client.get(NS, "p"), lambda process: process.last_event_id == 1)


@pytest.mark.parametrize("pause", [timedelta(0), timedelta(days=4000), "1", -PAUSE])
def test_a_pause_that_cannot_be(pause: Any) -> None:
    """It is refused where it is stated."""
    with pytest.raises(InvalidRequest, match="pause") as refused:
        Namespace(NS, pause=pause)
    assert refused.value.field == "pause"
