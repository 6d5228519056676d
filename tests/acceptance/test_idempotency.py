"""One key, one execution: attached to while it runs, replayed afterwards."""

import asyncio

import pytest

from progressor import HandlerFailed, ProcessBroken, Rejected
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import NS, Act, Scripted, until_status


async def test_the_same_key_attaches_to_what_is_in_flight(serve: MakeClient) -> None:
    """The same request asked again while the first still runs waits for that one's answer."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    start = Act(add=1, gate="start")
    starting = [asyncio.create_task(client.start(NS, "p", start, idempotency_key="s")) for _ in range(3)]
    await scripted.gates["start"].entered()
    starting.append(asyncio.create_task(client.start(NS, "p", start, idempotency_key="s")))
    scripted.gates["start"].open()
    assert await asyncio.gather(*starting) == [1, 1, 1, 1]
    call = Act(add=1, gate="call")
    calling = [
        asyncio.create_task(client.call(NS, "p", "act", call, idempotency_key="c")) for _ in range(3)
    ]
    await scripted.gates["call"].entered()
    calling.append(asyncio.create_task(client.call(NS, "p", "act", call, idempotency_key="c")))
    scripted.gates["call"].open()
    assert await asyncio.gather(*calling) == [2, 2, 2, 2]
    assert scripted.ran == [("p", "init"), ("p", "call")]


async def test_clients_of_different_processes_share_a_key(engine: MakeEngine, client: MakeClient) -> None:
    """Two clients with nothing in common but the key get one execution's answer."""
    scripted = Scripted()
    running = await engine(scripted.namespace)
    clients = [running.client, await client(), await client()]
    act = Act(add=4, gate="g")
    asked = [asyncio.create_task(each.start(NS, "p", act, idempotency_key="k")) for each in clients]
    await scripted.gates["g"].entered()
    scripted.gates["g"].open()
    assert await asyncio.gather(*asked) == [4, 4, 4]
    assert scripted.ran == [("p", "init")]


async def test_the_same_key_replays_the_stored_answer(serve: MakeClient) -> None:
    """Asked again later, a request gets its first answer: a response, a rejection, a failure."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    for _ in range(2):
        assert await client.start(NS, "p", Act(add=1), idempotency_key="start") == 1
    for _ in range(2):
        assert await client.call(NS, "p", "act", Act(add=1), idempotency_key="call") == 2
    for _ in range(2):
        await client.notify(NS, "p", "act", Act(add=1), idempotency_key="notify")
    for _ in range(2):
        with pytest.raises(Rejected) as refused:
            await client.call(NS, "p", "act", Act(reject="no"), idempotency_key="refused")
        assert refused.value.details == {"balance": 3}
    for _ in range(2):
        with pytest.raises(HandlerFailed, match="oops"):
            await client.call(NS, "p", "act", Act(fail="oops"), idempotency_key="failed")
    for _ in range(2):
        assert await client.repair(NS, "p", Act(add=1), idempotency_key="repair") == 4
    kinds = [kind for _, kind in scripted.ran]
    assert kinds == ["init", "call", "call", "call", "call", "repair"]


async def test_a_refused_init_is_replayed_under_its_key(serve: MakeClient) -> None:
    """A refused start answers the same under its key, and does not hinder one under another key."""
    client = await serve(Scripted().namespace)
    for _ in range(2):
        with pytest.raises(Rejected, match="no"):
            await client.start(NS, "p", Act(reject="no"), idempotency_key="first")
    assert await client.start(NS, "p", Act(add=1), idempotency_key="second") == 1
    with pytest.raises(Rejected, match="no"):
        await client.start(NS, "p", Act(reject="no"), idempotency_key="first")


async def test_keys_belong_to_one_process(serve: MakeClient) -> None:
    """The same key on two processes is two requests."""
    client = await serve(Scripted().namespace)
    for process_id, add in (("p", 1), ("q", 2)):
        assert await client.start(NS, process_id, Act(add=add), idempotency_key="k") == add


async def test_a_replay_works_on_a_broken_process(serve: MakeClient) -> None:
    """What was answered stays answered under its key, also when the process broke since."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    assert await client.call(NS, "p", "act", Act(add=1), idempotency_key="k") == 1
    await client.notify(NS, "p", "act", Act(fail="oops"))
    await until_status(client, "p", "error")
    assert await client.call(NS, "p", "act", Act(add=1), idempotency_key="k") == 1
    with pytest.raises(ProcessBroken):
        await client.call(NS, "p", "act", Act(add=1), idempotency_key="another")


async def test_simple_repair_is_idempotent(serve: MakeClient) -> None:
    """simple_repair under the same key is done once, and says so twice."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    await client.notify(NS, "p", "act", Act(fail="oops"))
    await until_status(client, "p", "error")
    for _ in range(2):
        await client.simple_repair(NS, "p", idempotency_key="k")
    assert [t.task_type for t in await client.trace(NS, "p")].count("repair") == 1
