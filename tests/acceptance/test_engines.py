"""Several namespaces, several engines, and the sharing of work between them."""

import asyncio
import logging
import math
from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from progressor import Engine, Namespace, Process, ProcessNotFound
from progressor.node.node import Node
from tests.acceptance.conftest import MakeClient, MakeEngine, Options
from tests.acceptance.support import NS, Act, Scripted, until, until_events

ENDLESS = timedelta(0)


async def test_two_namespaces_in_one_engine(serve: MakeClient) -> None:
    """Processes of the same id in two namespaces have nothing to do with each other."""
    first, second = Scripted("bank.first"), Scripted("bank.second")
    client = await serve(first.namespace, second.namespace)
    await client.start("bank.first", "p", Act(add=1))
    await client.start("bank.second", "p", Act(add=2, after=0))
    await until_events(client, "p", "fired", namespace="bank.second")
    assert await client.call("bank.first", "p", "act", Act(add=10)) == 11
    assert await client.call("bank.second", "p", "act", Act(add=10)) == 12
    assert (await client.get("bank.first", "p")).last_event_id == 0
    await client.remove("bank.first", "p")
    with pytest.raises(ProcessNotFound):
        await client.get("bank.first", "p")
    assert (await client.get("bank.second", "p")).state.balance == 12


async def test_an_engine_serves_only_its_namespaces(engine: MakeEngine, client: MakeClient) -> None:
    """Each of two engines runs the processes of the namespace that it serves, whoever asks."""
    first, second = Scripted("bank.first"), Scripted("bank.second")
    one, two = await engine(first.namespace), await engine(second.namespace)
    dispatcher = await client()
    for each in (one.client, two.client, dispatcher):
        process_id = f"p{id(each)}"
        assert await each.start("bank.first", process_id, Act(add=1)) == 1
        assert await each.start("bank.second", process_id, Act(add=2)) == 2
    assert (len(first.ran), len(second.ran)) == (3, 3)


async def test_an_engine_may_have_fewer_slots_than_its_namespaces_allow(engine: MakeEngine) -> None:
    """`concurrency` of the engine bounds that of each namespace, and raises none; it runs all the same."""
    wide, narrow = Scripted("bank.wide", concurrency=5), Scripted("bank.narrow", concurrency=1)
    running = await engine(wide.namespace, narrow.namespace, concurrency=2)
    assert running.pools.free_slots() == {"bank.wide": 2, "bank.narrow": 1}
    starts = (running.client.start("bank.wide", str(number), Act(add=number)) for number in range(5))
    assert await asyncio.gather(*starts) == [0, 1, 2, 3, 4]


async def test_two_engines_share_the_work(engine: MakeEngine, client: MakeClient) -> None:
    """Engines on one database share calls and timers, and no process ever runs two steps at once."""
    inside: set[str] = set()
    overlaps: list[str] = []
    workers: set[int] = set()

    def namespace_of(worker: int) -> Namespace:
        namespace = Namespace(NS, concurrency=4)

        @namespace.init
        async def init(process: Process) -> None:
            process.state = 0

        @namespace.call
        async def add(process: Process) -> int:
            await step(process)
            process.set_timer(after=timedelta(milliseconds=1))
            return process.state

        @namespace.timeout
        async def fire(process: Process) -> None:
            await step(process)

        async def step(process: Process) -> None:
            workers.add(worker)
            if process.process_id in inside:
                overlaps.append(process.process_id)
            inside.add(process.process_id)
            await asyncio.sleep(0.001)
            inside.discard(process.process_id)
            process.state += 1
            process.emit("step", worker=worker)

        return namespace

    askers = [(await engine(namespace_of(number))).client for number in range(2)] + [await client()]
    names = [f"p{number}" for number in range(6)]
    await asyncio.gather(*(askers[0].start(NS, name) for name in names))

    async def ask(asker_number: int, name: str) -> None:
        for _ in range(5):
            await askers[asker_number].call(NS, name, "add")

    await asyncio.gather(*(ask(number, name) for number in range(3) for name in names))
    assert overlaps == []
    assert workers == {0, 1}
    for name in names:
        process = await until(lambda name=name: askers[2].get(NS, name), idle_since_timer)
        assert [event.event_id for event in process.history] == list(range(1, process.state + 1))
        assert process.state >= 16


def idle_since_timer(process: Process) -> bool:
    """The last step of these processes is the timer of their last call."""
    return process.last_event_id >= 16


async def test_an_endless_chain_leaves_room_for_others(serve: MakeClient) -> None:
    """Two processes whose timers never pause keep two slots busy; a third still gets its turns."""
    namespace = Namespace(NS, concurrency=2)
    ended = asyncio.Event()

    @namespace.init
    async def init(process: Process, args: bool) -> None:
        process.state = 0
        if args:
            process.set_timer(after=ENDLESS)

    @namespace.timeout
    async def spin(process: Process) -> None:
        process.state += 1
        if not ended.is_set():
            process.set_timer(after=ENDLESS)

    @namespace.call
    async def arm(process: Process) -> int:
        process.state += 100
        process.set_timer(after=ENDLESS)
        return process.state

    client = await serve(namespace)
    await client.start(NS, "endless-1", True)
    await client.start(NS, "endless-2", True)
    await client.start(NS, "third", False)
    assert await client.call(NS, "third", "arm") == 100
    await until(lambda: client.get(NS, "third"), lambda process: process.state > 100)
    ended.set()
    assert (await client.get(NS, "endless-1")).state > 0
    assert (await client.get(NS, "endless-2")).state > 0


async def test_more_work_than_slots(serve: MakeClient) -> None:
    """Requests beyond the concurrency of a namespace wait their turn, and all are answered."""
    running: set[str] = set()
    most = 0
    namespace = Namespace(NS, concurrency=3)

    @namespace.init
    async def init(process: Process) -> str:
        nonlocal most
        running.add(process.process_id)
        most = max(most, len(running))
        await asyncio.sleep(0.005)
        running.discard(process.process_id)
        return process.process_id

    client = await serve(namespace)
    names = [f"p{number}" for number in range(30)]
    assert await asyncio.gather(*(client.start(NS, name) for name in names)) == names
    assert most <= 3


async def test_an_engine_takes_over_what_waits(dsn: str, mode: Options, client: MakeClient) -> None:
    """What was accepted while no engine ran is done by the next one: calls, and timers overdue."""
    dispatcher = await client()
    async with Engine(dsn, [Scripted().namespace], **mode):
        await dispatcher.start(NS, "called", Act(add=1))
        await dispatcher.start(NS, "timed", Act(after=0.3))
    calling = asyncio.create_task(dispatcher.call(NS, "called", "act", Act(add=1)))
    starting = asyncio.create_task(dispatcher.start(NS, "new", Act(add=5)))
    await until(lambda: dispatcher.search(namespace=NS), lambda page: len(page.items) == 3)
    async with Engine(dsn, [Scripted().namespace], **mode):
        assert (await calling, await starting) == (2, 5)
        await until_events(dispatcher, "timed", "fired")


async def test_an_engine_without_scanner_and_collector(engine: MakeEngine, client: MakeClient) -> None:
    """With neither service of its own an engine still works: hints, its own timers, its own slow scan."""
    await engine(Scripted().namespace, scanner=False, zombie_collector=False)
    dispatcher = await client()
    assert await dispatcher.start(NS, "p", Act(add=1, after=0.05)) == 1
    await until_events(dispatcher, "p", "fired")
    assert await dispatcher.call(NS, "p", "act", Act(add=1)) == 2


async def test_without_hints_each_worker_looks_by_itself(
    engine: MakeEngine, client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scanner that sees work first may choose another worker, which it cannot tell without signals."""
    monkeypatch.setattr(Node, "wake_worker", lambda *_: None)
    without: Options = {"signals": False, "listen_database_url": None}
    await engine(Scripted().namespace, scan_interval=timedelta(seconds=3), **without)
    dispatcher = await client(**without)
    # Its wait is shorter than the interval of a poll behind a scanner.
    assert await dispatcher.start(NS, "p", Act(add=1), timeout=timedelta(seconds=15)) == 1


class Endless(BaseModel):
    """Its default is no number of JSON."""

    most: float = math.inf


class Halved(BaseModel):
    """Half a character stands in its description."""

    text: str = Field("", description="\ud800")


class Unwritten(BaseModel):
    """Its schema cannot even be made."""

    text: str = Field("", json_schema_extra={"x": object()})  # type: ignore[dict-item]  # what is tested


@pytest.mark.parametrize(
    ("odd", "value"),
    [
        (Literal["\x00"], "\x00"),
        (Annotated[str, Field(pattern="^[^\x00]*$")], "text"),
        (Endless, {"most": 1}),
        (Halved, {}),
        (Unwritten, {}),
    ],
    ids=["nul", "pattern", "infinity", "surrogate", "no schema"],
)
async def test_schemas_that_cannot_be_stored(
    engine: MakeEngine, odd: Any, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine starts, serves them, publishes the others, and says once which it could not store."""
    namespace = Namespace(NS)

    @namespace.init
    async def init(process: Process, args: int) -> None: ...

    async def take(process: Process, args: Any) -> None: ...
    async def give(process: Process) -> Any:
        return value

    take.__annotations__["args"] = give.__annotations__["return"] = odd
    namespace.call(take)
    namespace.call(give)
    namespace.repair(take)
    with caplog.at_level(logging.WARNING, "progressor.engine"):
        served = (await engine(namespace)).client
    nothing = {"args": None, "returns": None}
    found = (await served.published(NS)).schemas
    assert found == {
        "state": None,
        "init": {"type": "integer"},
        "calls": {"give": nothing, "take": nothing},
        "repair": None,
        "dry_run": False,
    }
    await served.start(NS, "p", 1)
    await served.call(NS, "p", "take", value)
    told = [(each.namespace, each.schemas) for each in caplog.records]  # type: ignore[attr-defined]  # ours
    left_out = ["repair", "call give: returns", "call take: args"]
    assert told == ([] if odd is Unwritten else [(NS, left_out)])


async def test_the_client_of_an_engine_knows_what_it_serves(engine: MakeEngine) -> None:
    """It asks the database about no namespace before its first request."""
    running = await engine(Scripted().namespace)
    assert running.client._dispatcher._known == {NS}
