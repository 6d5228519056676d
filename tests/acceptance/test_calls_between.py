"""Handlers that ask other processes and wait: none waits for a slot that only waiting handlers hold, and a
wait that could never end is refused at once."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from progressor import (
    CallCycle,
    Client,
    Engine,
    InvalidRequest,
    Namespace,
    Process,
    ProcessStatus,
    SyncClient,
    TaskType,
)
from tests.acceptance.conftest import MakeClient, MakeEngine, Options, of_a_client
from tests.acceptance.support import DEADLINE, Gate, until, until_waiting

NS = "ns"
# Long enough to be a failure of the test if anybody waits it out.
TIMEOUT = 2 * DEADLINE


class Asking:
    """A namespace whose handlers ask other processes, in one of the ways in which users do."""

    def __init__(self, **options: Any) -> None:
        self.namespace = Namespace(NS, **options)
        self.client: Client
        self.sync_client: SyncClient
        self.ran: list[str] = []
        self.gate = Gate()


class Coroutines(Asking):
    """Handlers are coroutines; they ask through a Client, their engine's or one of their own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

        @self.namespace.call
        async def follow(process: Process, way: list[str]) -> list[str]:
            self.ran.append(process.process_id)
            if not way:
                return [process.process_id]
            return [process.process_id, *await self.ask(way[0], "follow", way[1:])]

        @self.namespace.call
        async def careful(process: Process, way: list[str]) -> str:
            try:
                await self.ask(way[0], "careful", way[1:])
            except InvalidRequest as error:
                return f"{process.process_id}: {type(error).__name__}"
            return "no error"

        @self.namespace.call
        async def gated(process: Process, way: list[str]) -> list[str]:
            await self.gate.pass_through()
            return [process.process_id, *await self.ask(way[0], "follow", way[1:])]

    async def ask(self, process_id: str, name: str, way: list[str]) -> Any:
        return await self.client.call(NS, process_id, name, way, timeout=TIMEOUT)


class Functions(Asking):
    """Handlers are functions in threads; they ask through a SyncClient."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

        @self.namespace.call
        def follow(process: Process, way: list[str]) -> list[str]:
            self.ran.append(process.process_id)
            if not way:
                return [process.process_id]
            return [process.process_id, *self.ask(way[0], "follow", way[1:])]

        @self.namespace.call
        def careful(process: Process, way: list[str]) -> str:
            try:
                self.ask(way[0], "careful", way[1:])
            except InvalidRequest as error:
                return f"{process.process_id}: {type(error).__name__}"
            return "no error"

        @self.namespace.call
        async def gated(process: Process, way: list[str]) -> list[str]:
            await self.gate.pass_through()
            rest = await asyncio.to_thread(self.ask, way[0], "follow", way[1:])
            return [process.process_id, *rest]

    def ask(self, process_id: str, name: str, way: list[str]) -> Any:
        return self.sync_client.call(NS, process_id, name, way, timeout=TIMEOUT)


WAYS = ["own engine", "own client", "threads"]
MakeAsking = Callable[..., Awaitable[Asking]]


@pytest.fixture(params=WAYS)
async def asking(
    request: pytest.FixtureRequest, dsn: str, mode: Options, engine: MakeEngine, client: MakeClient
) -> Any:
    """`await asking(process ids, …)`: an engine that serves the namespace; handlers ask through its client,
    through a client of their own, or in threads."""
    made: list[SyncClient] = []

    async def make(*processes: str, **options: Any) -> Asking:
        asking = (Functions if request.param == "threads" else Coroutines)(**options)
        running = await engine(asking.namespace)
        asking.client = running.client if request.param == "own engine" else await client()
        options = of_a_client(mode)
        asking.sync_client = SyncClient(dsn, **options)
        made.append(asking.sync_client)
        for process_id in processes:
            await running.client.put(NS, process_id)
        return asking

    yield make
    for each in made:
        await asyncio.to_thread(each.close)


async def test_a_chain_of_calls_needs_one_slot(asking: MakeAsking, client: MakeClient) -> None:
    """A handler that waits lends its slot to what it waits for, which does the same."""
    names = ["a", "b", "c", "d", "e"]
    await asking(*names, concurrency=1)
    assert await (await client()).call(NS, "a", "follow", names[1:]) == names


async def test_more_callers_than_slots(asking: MakeAsking, client: MakeClient) -> None:
    """When each slot is held by a handler that asks another process, and more such wait, all go through."""
    callers = [f"caller{number}" for number in range(12)]
    asked = [f"asked{number}" for number in range(12)]
    await asking(*callers, *asked, concurrency=3)
    outside = await client()
    answers = await asyncio.gather(
        *(outside.call(NS, caller, "follow", [other]) for caller, other in zip(callers, asked, strict=True))
    )
    assert answers == [list(pair) for pair in zip(callers, asked, strict=True)]


async def test_the_mailbox_keeps_its_order(asking: MakeAsking, client: MakeClient) -> None:
    """What waited before on the process that is asked, runs before, in the slot that is lent."""
    script = await asking("a", "b", "x", "y", concurrency=1)
    outside = await client()
    first = asyncio.create_task(outside.call(NS, "a", "gated", ["b"]))
    await script.gate.entered()
    waiting = []
    for name in ("x", "y"):
        waiting.append(asyncio.create_task(outside.call(NS, "b", "follow", [name])))
        await until_waiting(outside, "b", len(waiting), namespace=NS)
    script.gate.open()
    assert await first == ["a", "b"]
    assert await asyncio.gather(*waiting) == [["b", "x"], ["b", "y"]]
    assert script.ran == ["b", "x", "b", "y", "b"]


async def test_a_process_that_asks_itself(asking: MakeAsking, client: MakeClient) -> None:
    """It is refused at once, the caller hears why, and the process lives on."""
    await asking("a")
    outside = await client()
    with pytest.raises(InvalidRequest, match=r"would wait for itself \('ns/a' → 'ns/a'\).*notify"):
        await outside.call(NS, "a", "follow", ["a"])
    assert await outside.call(NS, "a", "careful", ["a"]) == "a: CallCycle"
    assert (await outside.get(NS, "a")).status is ProcessStatus.RUNNING


async def test_processes_that_ask_in_a_circle(asking: MakeAsking, client: MakeClient) -> None:
    """The call that would close the circle is refused, and none of them breaks."""
    await asking("a", "b", "c")
    outside = await client()
    assert await outside.call(NS, "a", "careful", ["b", "c", "a"]) == "no error"
    for process_id in ("a", "b", "c"):
        assert (await outside.get(NS, process_id)).status is ProcessStatus.RUNNING
    assert await outside.call(NS, "c", "follow", ["a", "b"]) == ["c", "a", "b"]


async def test_a_stopping_worker_runs_what_its_steps_wait_for(
    dsn: str, mode: Options, client: MakeClient
) -> None:
    """A stop claims nothing new, but lets what runs come to its end: with the answers that it needs."""
    script = Coroutines()
    outside = await client()
    async with Engine(dsn, [script.namespace], **mode) as engine:
        script.client = engine.client
        await outside.put(NS, "a")
        await outside.put(NS, "b")
        asked = asyncio.create_task(outside.call(NS, "a", "gated", ["b"]))
        await script.gate.entered()
        stopping = asyncio.create_task(engine.stop())

        async def stops() -> bool:
            return not any(pool.is_open for pool in engine.pools.values())

        await until(stops, bool)
        script.gate.open()
        assert await asked == ["a", "b"]
        await stopping


async def test_a_notice_to_oneself_is_fine(serve: MakeClient) -> None:
    """A handler that waits for no answer may put work into its own mailbox."""
    namespace, holder = Namespace(NS), []

    @namespace.init
    async def init(process: Process) -> None:
        await holder[0].notify(NS, process.process_id, "later")

    @namespace.call
    async def later(process: Process) -> None:
        process.emit("later")

    holder.append(await serve(namespace))
    await holder[0].start(NS, "p")
    await until(lambda: holder[0].get(NS, "p"), lambda process: process.last_event_id == 1)


async def test_to_look_at_oneself_before_one_exists(serve: MakeClient) -> None:
    """`get` waits for a running init: from that very init it is refused."""
    namespace, holder = Namespace(NS), []

    @namespace.init
    async def init(process: Process) -> str:
        with pytest.raises(CallCycle) as refused:
            await holder[0].get(NS, process.process_id)
        return str(refused.value.field)

    @namespace.call
    async def look(process: Process) -> str:
        return (await holder[0].get(NS, process.process_id)).status.value

    holder.append(await serve(namespace))
    assert await holder[0].start(NS, "p") == "process_id"
    assert await holder[0].call(NS, "p", "look") == "running"


async def test_what_a_handler_leaves_behind_is_nobodys(serve: MakeClient) -> None:
    """A task that outlives its step asks like any other code: nobody waits for it."""
    namespace, holder, left = Namespace(NS), [], []
    over = asyncio.Event()

    @namespace.call
    async def leave(process: Process) -> None:
        async def ask() -> str:
            await over.wait()
            return await holder[0].call(NS, process.process_id, "answer")

        left.append(asyncio.create_task(ask()))

    @namespace.call
    async def answer(process: Process) -> str:
        return "answer"

    holder.append(await serve(namespace))
    await holder[0].put(NS, "p")
    await holder[0].call(NS, "p", "leave")
    over.set()
    assert await left[0] == "answer"


async def test_a_timer_in_a_circle_is_tried_again(serve: MakeClient) -> None:
    """A timer that meets a circle has failed like any other: the circle may be gone at its next attempt."""
    namespace, holder = Namespace(NS), []

    @namespace.init
    async def init(process: Process) -> None:
        process.set_timer(after=timedelta(0))

    @namespace.timeout
    async def fire(process: Process) -> None:
        if process.task.attempts_count == 0:
            await holder[0].call(NS, process.process_id, "nothing")
        process.emit("fired")

    holder.append(await serve(namespace))
    await holder[0].start(NS, "p")
    await until(lambda: holder[0].get(NS, "p"), lambda process: process.last_event_id == 1)
    timers = [task for task in await holder[0].trace(NS, "p") if task.task_type is TaskType.TIMEOUT]
    assert [task.attempts_count for task in timers] == [1]
