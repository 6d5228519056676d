"""Sync handlers: each slot has a thread, and a handler that never returns costs its own slot alone."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from progressor import Client, Engine, HandlerFailed, Namespace, Process
from tests.acceptance.conftest import MakeClient, MakeEngine, Options
from tests.acceptance.support import DEADLINE, until, until_waiting

SHORT = timedelta(milliseconds=80)
STEPS = 40


class Hanging:
    """A namespace whose call `hang` does not return before the test says so."""

    def __init__(self, name: str, **options: Any) -> None:
        self.proceed = threading.Event()
        self.namespace = Namespace(name, **options)
        self.namespace.call(self.hang)
        self.namespace.call(self.quick)

    def hang(self, process: Process) -> None:
        assert self.proceed.wait(DEADLINE)

    def quick(self, process: Process) -> str:
        return "quick"


@pytest.fixture
async def hanging(stack: AsyncExitStack) -> AsyncIterator[Callable[..., Hanging]]:
    made: list[Hanging] = []

    def make(name: str = "ns", **options: Any) -> Hanging:
        made.append(Hanging(name, **options))
        return made[-1]

    yield make
    for each in made:
        each.proceed.set()


async def hang(client: Client, *processes: str) -> None:
    """Let handlers hang beyond their step_timeout."""
    for process_id in processes:
        await client.put("ns", process_id)
    asked = [client.call("ns", process_id, "hang") for process_id in processes]
    for failure in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(failure, HandlerFailed)
        assert failure.error.startswith("StepTimeout")


def slots(state: str) -> float | None:
    return REGISTRY.get_sample_value("progressor_slots", {"prg_namespace": "ns", "state": state})


async def until_free(count: int) -> None:
    async def free() -> float | None:
        return slots("free")

    await until(free, lambda free: free == count)


async def test_as_many_at_once_as_there_are_slots(serve: MakeClient) -> None:
    """Whatever their number, the steps that a worker has taken run: none of them waits for a thread."""
    namespace, together = Namespace("ns", concurrency=STEPS), threading.Barrier(STEPS, timeout=DEADLINE)

    @namespace.init
    def init(process: Process) -> int:
        return together.wait()

    client = await serve(namespace)
    answers = await asyncio.gather(*(client.start("ns", f"p{number}") for number in range(STEPS)))
    assert sorted(answers) == list(range(STEPS))


async def test_two_workers_share_what_waits(engine: MakeEngine, client: MakeClient) -> None:
    """No worker takes more than it has threads for: two of them run twice as much at once."""
    together = threading.Barrier(2 * STEPS, timeout=DEADLINE)

    def serving() -> Namespace:
        namespace = Namespace("ns", concurrency=STEPS)

        @namespace.call
        def meet(process: Process) -> None:
            together.wait()

        return namespace

    for _ in range(2):
        await engine(serving())
    dispatcher = await client()
    names = [f"p{number}" for number in range(4 * STEPS)]
    await asyncio.gather(*(dispatcher.put("ns", name) for name in names))
    await asyncio.gather(*(dispatcher.call("ns", name, "meet", timeout=DEADLINE) for name in names))


async def test_a_hung_handler_costs_its_own_slot_alone(
    serve: MakeClient, hanging: Callable[..., Hanging]
) -> None:
    """Handlers that never return take the slots of their namespace, not those of another one."""
    one, other = hanging(concurrency=2, step_timeout=SHORT), hanging("other", concurrency=1)
    client = await serve(one.namespace, other.namespace)
    await hang(client, "p1")
    await client.put("ns", "q")
    await client.put("other", "q")
    assert await client.call("ns", "q", "quick") == "quick"
    await hang(client, "p2")
    assert await client.call("other", "q", "quick") == "quick"
    assert (slots("hung"), slots("free"), slots("busy")) == (2, 0, 0)
    waiting = asyncio.create_task(client.call("ns", "q", "quick"))
    await until_waiting(client, "q", 1, namespace="ns")
    one.proceed.set()
    assert await waiting == "quick"
    await until_free(2)
    assert slots("hung") == 0


async def test_another_worker_takes_what_a_hung_one_cannot(
    engine: MakeEngine, hanging: Callable[..., Hanging]
) -> None:
    """A worker all of whose slots hang claims nothing more: what waits is for the others."""
    first = await engine(hanging(concurrency=2, step_timeout=SHORT).namespace)
    await hang(first.client, "p1", "p2")
    await engine(hanging(concurrency=2).namespace)
    for process_id in ("q1", "q2", "q3"):
        await first.client.put("ns", process_id)
    asked = [first.client.call("ns", process_id, "quick") for process_id in ("q1", "q2", "q3")]
    assert await asyncio.gather(*asked) == ["quick"] * 3


async def test_stop_does_not_wait_for_hung_handlers(
    dsn: str, mode: Options, hanging: Callable[..., Hanging]
) -> None:
    """The step of a hung handler is over: there is nothing to be finished."""
    namespace = hanging(concurrency=2, step_timeout=SHORT).namespace
    async with asyncio.timeout(DEADLINE):
        async with Engine(dsn, [namespace], **mode, stop_grace=timedelta(days=1)) as engine:
            await hang(engine.client, "p1", "p2")


async def test_a_call_that_waits_behind_a_hung_one_goes_on(
    engine: MakeEngine, hanging: Callable[..., Hanging]
) -> None:
    """A timer that hangs keeps its slot, and the call that waits on its process gets another one."""
    hangs = hanging(concurrency=2, step_timeout=SHORT)
    inside = asyncio.Event()
    loop = asyncio.get_running_loop()

    @hangs.namespace.init
    def init(process: Process) -> None:
        process.set_timer(after=timedelta(0))

    @hangs.namespace.timeout
    def fire(process: Process) -> None:
        loop.call_soon_threadsafe(inside.set)
        assert hangs.proceed.wait(DEADLINE)

    client = (await engine(hangs.namespace)).client
    await client.start("ns", "p")
    await inside.wait()
    assert await client.call("ns", "p", "quick") == "quick"
