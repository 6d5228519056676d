"""What operators do is noted, with who they are; what callers and handlers ask is not."""

import asyncio
from datetime import timedelta

import pytest

from progressor import (
    Client,
    Cron,
    Engine,
    InvalidRequest,
    Namespace,
    Process,
    ProcessNotBroken,
    SyncClient,
    acting,
)
from progressor.schedules import SCHEDULES, pause, resume, trigger
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import NS, Act, Scripted, until


async def verbs(client: Client, **wanted: str) -> list[str]:
    return [entry.verb for entry in (await client.audit(**wanted)).entries]


async def test_calls_leave_no_entry(serve: MakeClient) -> None:
    """Starts, calls and notices are no acts of operators."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=1))
    await client.call(NS, "p", "act", Act(add=1))
    await client.notify(NS, "p", "act", Act(add=1))
    assert (await client.audit()).entries == []


async def test_repairs_leave_one_each(serve: MakeClient) -> None:
    """A repair that is refused leaves none."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=1))
    with pytest.raises(ProcessNotBroken):
        await client.simple_repair(NS, "p")
    await client.put(NS, "q", state={"balance": 1}, status="error")
    with acting("eve", reason="the tests", origin="desk"):
        await client.simple_repair(NS, "q")
    found = (await client.audit(NS, process_id="q")).entries
    assert [entry.verb for entry in found] == ["simple_repair", "put"]
    assert (found[0].actor, found[0].reason, found[0].origin) == ("eve", "the tests", "desk")
    assert (found[1].actor, found[1].way) == (found[1].role, "python")


async def test_who_acts(dsn: str) -> None:
    """The innermost block counts, then the client's own name; a block holds for its tasks alone."""
    async with Engine(dsn, [Namespace(NS)]), Client(dsn, actor="import") as client:
        await client.pause(NS)
        with acting("eve", reason="night"):
            with acting(reason="late"):
                await asyncio.create_task(client.resume(NS))
            await client.pause(NS, "no reason")
            await client.resume(NS)
        await client.pause(NS)
        found = [(entry.actor, entry.reason) for entry in (await client.audit(NS)).entries]
        assert found == [
            ("import", None),
            ("eve", "night"),
            ("eve", "no reason"),
            ("eve", "late"),
            ("import", None),
        ]
        assert (await client.namespaces())[0].pause_reason is None


def test_a_sync_client(dsn: str) -> None:
    """The block of the calling thread holds."""
    asyncio.run(_served(dsn))
    with SyncClient(dsn) as client:
        with acting("eve"):
            client.pause(NS)
        client.resume(NS)
        resumed, paused = client.audit(NS).entries
    assert paused.actor == "eve"
    assert resumed.actor == resumed.role


async def _served(dsn: str) -> None:
    async with Engine(dsn, [Namespace(NS)]):
        pass


async def test_schedules(dsn: str) -> None:
    """A pause, a resume and a trigger, whoever calls them; what the schedule sends leaves none."""
    orders: Namespace[None] = Namespace(NS)

    @orders.init
    async def begin(process: Process[None]) -> None:
        """Nothing to do."""

    orders.schedule("yearly", Cron("0 0 1 1 *"), start=lambda at: f"{at:%Y}", overlap="allow")
    async with Engine(dsn, [orders], fuse="always") as engine, Client(dsn) as client:
        name = f"{NS}/yearly"
        await engine.client.call(pause, name, "a test")
        with acting(reason="over"):
            await client.call(SCHEDULES, name, "resume")
        await client.call(trigger, name)
        await client.call(resume, name, idempotency_key="again")
        await client.call(resume, name, idempotency_key="again")
        found = (await client.audit(SCHEDULES, process_id=name)).entries
        assert [entry.verb for entry in found] == [
            "resume_schedule",
            "trigger_schedule",
            "resume_schedule",
            "pause_schedule",
        ]
        assert found[2].reason == "over"


async def test_a_handler_acts_as_its_process(dsn: str) -> None:
    """Whoever asked it: its request may be run with those of others."""
    names = Namespace("names", state=dict[str, int])
    clients: list[Client] = []

    @names.init
    async def begin(process: Process[dict[str, int]]) -> None:
        process.state = {}

    @names.call
    async def drop(process: Process[dict[str, int]]) -> None:
        await clients[0].remove("names", "other")

    async with Engine(dsn, [names]) as engine, Client(dsn) as client:
        clients.append(client)
        await client.start("names", "one")
        await client.start("names", "other")
        with acting("eve", reason="mine"):
            await engine.client.call("names", "one", "drop")
        (entry,) = (await client.audit("names")).entries
        assert (entry.verb, entry.process_id) == ("remove", "other")
        assert (entry.actor, entry.way, entry.reason) == ("names/one", "step", None)


async def test_a_bulk(serve: MakeClient) -> None:
    """It leaves one entry when it is made, and none for the repairs that it begins."""
    client = await serve(Scripted().namespace)
    for name in ("p", "q"):
        await client.put(NS, name, state={"balance": 1}, status="error")
    bulk = await client.repair_all(NS, simple=True, rate=1000)
    await until(lambda: client.bulk(bulk.bulk_id), lambda bulk: bulk.repaired == 2)
    assert await verbs(client) == ["repair_all", "put", "put"]


@pytest.mark.parametrize("text", ["", "two\nlines", "x" * 257, 7])
async def test_bad_texts(text: str) -> None:
    """They are refused as the block begins."""
    for name in ("actor", "reason", "origin"):
        with pytest.raises(InvalidRequest, match=f"{name} must"), acting(**{name: text}):  # type: ignore[arg-type]
            pass
    with pytest.raises(InvalidRequest, match="actor"):
        Client("postgresql://nowhere", actor=text)


async def test_bad_filters(serve: MakeClient) -> None:
    """They are refused by their names."""
    client = await serve(Scripted().namespace)
    for wanted in (
        {"verb": "rename"},
        {"since": timedelta(-1)},
        {"limit": 0},
        {"cursor": "x"},
        {"namespaces": ["?"]},
    ):
        with pytest.raises(InvalidRequest):
            await client.audit(**wanted)  # type: ignore[arg-type]
