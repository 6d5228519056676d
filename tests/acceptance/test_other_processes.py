"""Engines and clients in other OS processes, killed and frozen: steps are kept, and never done twice."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from progressor import HandlerFailed, Namespace, Process, ProcessBroken, ProcessStatus, TaskStatus
from progressor.schedules import SCHEDULES, trigger
from tests.acceptance.conftest import MakeClient, MakeEngine, Options, of_a_client
from tests.acceptance.other_process import (
    LIMITED,
    NS,
    ORDERS,
    RATE,
    Work,
    namespace_of,
    orders,
    read_options,
)
from tests.acceptance.support import (
    DEADLINE,
    Gate,
    Scripted,
    assert_kept,
    until,
    until_status,
    until_waiting,
)

ROOT = Path(__file__).parents[2]
LEASE_AGE = 1.5
QUICK = {
    "lease_age": LEASE_AGE,
    "heartbeat_interval": 0.1,
    "zombie_interval": 0.1,
}


class Other:
    """Another OS process and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def says(self, text: str) -> str:
        """Return the first line from now on that holds a text."""
        assert self._process.stdout is not None
        heard = []
        async with asyncio.timeout(DEADLINE):
            while line := (await self._process.stdout.readline()).decode():
                if text in line:
                    return line
                heard.append(line)
        raise AssertionError(f"it ended without saying {text!r}: {''.join(heard)}")

    async def ended(self) -> int:
        """Return how it ended, by itself."""
        async with asyncio.timeout(DEADLINE):
            return await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, if it still lives."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        # Reading to the end closes the pipe.
        assert self._process.stdout is not None
        await self._process.stdout.read()


Run = Callable[..., Awaitable[Other]]


@pytest.fixture
def options(mode: Options) -> dict[str, object]:
    """The mode's options in seconds, as they go over a command line."""
    return {n: v.total_seconds() if isinstance(v, timedelta) else v for n, v in mode.items()}


@pytest.fixture
async def run(dsn: str, stack: AsyncExitStack) -> AsyncIterator[Run]:
    """`await run("serve", …)`: another OS process, killed after the test."""
    async with AsyncExitStack() as others:

        async def start(what: str, *arguments: str) -> Other:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.acceptance.other_process", what, dsn, *arguments,
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            other = Other(process)
            others.push_async_callback(other.kill)
            return other

        yield start


@pytest.fixture
def victim(run: Run, options: dict[str, object]) -> Run:
    """`await victim(on_zombie)`: an engine in another OS process."""

    async def start(on_zombie: str) -> Other:
        other = await run("serve", on_zombie, json.dumps({**options, **QUICK}))
        await other.says("ready")
        return other

    return start


@pytest.fixture
def rescuer(engine: MakeEngine) -> Callable[[str], Awaitable[object]]:
    """`await rescuer(on_zombie)`: an engine in this process, which collects what the victim leaves."""

    async def start(on_zombie: str) -> object:
        namespace = namespace_of(on_zombie=on_zombie, victim=False)
        return await engine(namespace, **read_options(json.dumps(QUICK)))

    return start


async def test_a_call_by_function_to_another_process(victim: Run, client: MakeClient) -> None:
    """A declaration of the function is address enough: its own release of the code serves the call."""
    await victim("retry")
    declared = Namespace(NS)

    @declared.init
    async def init(process: Process) -> None: ...

    @declared.call
    async def work(process: Process, args: Work) -> int: ...  # type: ignore[empty-body] # never run

    outside = await client()
    await outside.start(init, "p")
    assert await outside.call(work, "p", Work()) == 1


async def test_a_client_in_another_process(
    engine: MakeEngine, run: Run, options: dict[str, object]
) -> None:
    """A client that shares nothing with the workers, not even the OS process, starts and calls."""
    await engine(Scripted().namespace)
    only = of_a_client(options)
    other = await run("ask", json.dumps(only))
    answers = json.loads(await other.says("["))
    assert sorted(answers) == [1, 2, 3, 4, 5, 6]


async def test_an_engine_in_another_process(victim: Run, client: MakeClient) -> None:
    """An engine in another OS process serves the clients of this one."""
    await victim("error")
    dispatcher = await client()
    await dispatcher.start(NS, "p")
    answers = await asyncio.gather(*(dispatcher.call(NS, "p", "work", Work()) for _ in range(5)))
    assert sorted(answers) == [1, 2, 3, 4, 5]
    first = (await dispatcher.trace(NS, "p"))[1].task_id
    assert await asyncio.gather(*(dispatcher.redo(NS, "p", first) for _ in range(5))) == [6] * 5


@pytest.mark.parametrize("kind", ["call", "timeout"])
async def test_a_killed_engine_under_retry(
    victim: Run, rescuer: Run, client: MakeClient, kind: str
) -> None:
    """The work of an engine that was killed completes elsewhere, once; its caller gets the answer."""
    dispatcher, other = await client(), await victim("retry")
    await dispatcher.start(NS, "p")
    if kind == "call":
        calling = asyncio.create_task(dispatcher.call(NS, "p", "work", Work(hold="/nowhere")))
    else:
        calling = asyncio.create_task(dispatcher.call(NS, "p", "arm"))
    await other.says("begun p")
    waiting = asyncio.create_task(dispatcher.call(NS, "p", "work", Work()))
    await until_waiting(dispatcher, "p", 1, namespace=NS)
    await rescuer("retry")
    os.kill(other.pid, signal.SIGKILL)
    await asyncio.gather(calling, waiting)
    process = await until(lambda: dispatcher.get(NS, "p"), lambda process: process.state == 2)
    assert [event.event_id for event in process.history] == [1, 2]
    assert process.status is ProcessStatus.RUNNING
    (again,) = [task for task in await dispatcher.trace(NS, "p") if task.attempts_count]
    assert (again.task_type, again.status, again.attempts_count) == (kind, TaskStatus.FINISHED, 1)


async def test_a_killed_engine_by_default(victim: Run, rescuer: Run, client: MakeClient) -> None:
    """Timers of a killed engine go on elsewhere, as after a failure; a lost call breaks its process."""
    dispatcher, other = await client(), await victim("policy")
    names = [f"p{place}" for place in range(20)]
    await asyncio.gather(*(dispatcher.start(NS, name) for name in ["called", *names]))
    await asyncio.gather(*(dispatcher.call(NS, name, "arm") for name in names))
    for _ in names:
        await other.says("begun p")
    calling = asyncio.create_task(dispatcher.call(NS, "called", "work", Work(hold="/nowhere")))
    await other.says("begun called")
    await rescuer("policy")
    os.kill(other.pid, signal.SIGKILL)
    with pytest.raises(HandlerFailed, match="zombie detected"):
        await calling
    for name in names:
        process = await until(partial(dispatcher.get, NS, name), lambda process: process.state == 1)
        assert process.status is ProcessStatus.RUNNING
        timer = (await dispatcher.trace(NS, name))[-1]
        assert (timer.task_type, timer.status) == ("timeout", TaskStatus.FINISHED)
        assert (timer.attempts_count, timer.last_retry_interval) == (1, timedelta(seconds=1))
    (broken,) = (await dispatcher.search(namespace=NS, status="error")).items
    assert broken.process_id == "called"


async def test_a_killed_engine_under_error(victim: Run, rescuer: Run, client: MakeClient) -> None:
    """Under on_zombie=error the process breaks, all callers are told; a repair and a redo mend it."""
    dispatcher, other = await client(), await victim("error")
    await dispatcher.start(NS, "p")
    calling = asyncio.create_task(dispatcher.call(NS, "p", "work", Work(hold="/nowhere")))
    await other.says("begun p")
    waiting = asyncio.create_task(dispatcher.call(NS, "p", "work", Work()))
    await until_waiting(dispatcher, "p", 1, namespace=NS)
    await rescuer("error")
    os.kill(other.pid, signal.SIGKILL)
    with pytest.raises(HandlerFailed, match="zombie detected"):
        await calling
    with pytest.raises(ProcessBroken, match="zombie detected"):
        await waiting
    process = await dispatcher.get(NS, "p")
    zombie = (await dispatcher.trace(NS, "p"))[1]
    assert (process.status, process.corrupted_by) == (ProcessStatus.ERROR, zombie.task_id)
    assert process.detail == zombie.error
    assert f"worker {zombie.worker_id} was last seen at " in zombie.error
    await dispatcher.repair(NS, "p")
    assert await dispatcher.call(NS, "p", "work", Work()) == 1
    assert await dispatcher.redo(NS, "p", zombie.task_id) == 2
    assert await dispatcher.redo(NS, "p", zombie.task_id) == 2


async def test_a_frozen_engine_is_fenced_off(
    victim: Run, rescuer: Run, client: MakeClient, tmp_path: Path
) -> None:
    """What an engine brings home after it was given up is dropped: the work was done elsewhere."""
    dispatcher, other = await client(), await victim("retry")
    await dispatcher.start(NS, "p")
    hold = tmp_path / "hold"
    calling = asyncio.create_task(dispatcher.call(NS, "p", "work", Work(hold=str(hold))))
    await other.says("begun p")
    running = await rescuer("retry")
    os.kill(other.pid, signal.SIGSTOP)
    assert await calling == 1
    before = await dispatcher.get(NS, "p")
    hold.touch()
    os.kill(other.pid, signal.SIGCONT)
    await other.says("lease lost, result dropped")
    assert (await dispatcher.get(NS, "p")).snapshot == before.snapshot
    # It lives on, and works.
    await running.stop()
    assert await dispatcher.call(NS, "p", "work", Work()) == 2


def newer_release(gate: Gate) -> Namespace:
    """A namespace with a function that the victim does not know; `work` stops at the gate."""
    namespace = Namespace(NS, on_zombie="retry")

    @namespace.init
    async def init(process: Process) -> None:
        process.state = 0

    @namespace.call
    async def work(process: Process, _args: Work) -> int:
        await gate.pass_through()
        return change(process, 1)

    @namespace.call
    async def undo(process: Process) -> int:
        return change(process, -1)

    def change(process: Process, by: int) -> int:
        process.state += by
        process.emit("changed", by=by)
        return process.state

    return namespace


async def test_a_frozen_engine_of_an_older_release(
    victim: Run, engine: MakeEngine, client: MakeClient, tmp_path: Path
) -> None:
    """What it held runs once at the newer one, also if it comes back before that has ended.

    What it does not know is left to the newer one all along.
    """
    dispatcher, other = await client(), await victim("retry")
    await dispatcher.start(NS, "p")
    hold = tmp_path / "hold"
    calling = asyncio.create_task(dispatcher.call(NS, "p", "work", Work(hold=str(hold))))
    await other.says("begun p")
    gate = Gate()
    await engine(newer_release(gate), **read_options(json.dumps(QUICK)))
    undoing = asyncio.create_task(dispatcher.call(NS, "p", "undo"))
    await until_waiting(dispatcher, "p", 1, namespace=NS)
    os.kill(other.pid, signal.SIGSTOP)
    await gate.entered()
    hold.touch()
    os.kill(other.pid, signal.SIGCONT)
    await other.says("lease lost, result dropped")
    gate.open()
    assert await asyncio.gather(calling, undoing) == [1, 0]
    process = await dispatcher.get(NS, "p")
    assert [event.payload for event in process.history] == [{"by": 1}, {"by": -1}]
    assert [(task.name, task.status, task.attempts_count) for task in await dispatcher.trace(NS, "p")] == [
        (None, TaskStatus.FINISHED, 0),
        ("work", TaskStatus.FINISHED, 1),
        ("undo", TaskStatus.FINISHED, 0),
    ]
    names = [f"q{place}" for place in range(10)]
    await asyncio.gather(*(dispatcher.start(NS, name) for name in names))
    assert await asyncio.gather(*(dispatcher.call(NS, name, "undo") for name in names)) == [-1] * 10


async def test_a_blocked_event_loop_is_no_death(victim: Run, rescuer: Run, client: MakeClient) -> None:
    """A handler that blocks its engine's event loop for longer than a lease is not taken for a zombie."""
    dispatcher, other = await client(), await victim("error")
    await dispatcher.start(NS, "p")
    calling = asyncio.create_task(dispatcher.call(NS, "p", "work", Work(block=2 * LEASE_AGE)))
    await other.says("begun p")
    await rescuer("error")
    assert await calling == 1
    await until_status(dispatcher, "p", "running", namespace=NS)
    assert [task.error for task in await dispatcher.trace(NS, "p")] == [None, None]


async def test_a_rate_holds_over_os_processes(
    run: Run, client: MakeClient, options: dict[str, object]
) -> None:
    """Three workers, of which one alone could not begin so many: in no second more than the rate admits."""
    for other in [await run("limit", json.dumps(options)) for _ in range(3)]:
        await other.says("ready")
    asking = await client()
    names = [f"p{place}" for place in range(20)]
    await asyncio.gather(*(asking.start(LIMITED, name) for name in names))
    await asyncio.gather(*(asking.call(LIMITED, name, "work") for name in names * 10))
    tasks = [task for name in names for task in await asking.trace(LIMITED, name)]
    assert len(tasks) == 220
    assert_kept(RATE, sorted(task.running_time for task in tasks if task.running_time))
    assert len({task.worker_id for task in tasks}) > 1


async def test_a_fan_out_whose_sender_is_killed(
    run: Run, engine: MakeEngine, client: MakeClient, options: dict[str, object]
) -> None:
    """In the middle of a page: another worker sends that again, and each process gets one notice."""
    other, asking = await run("send", "150", json.dumps({**options, **QUICK})), await client()
    await other.says("ready")
    names, schedule = [f"p{place}" for place in range(230)], f"{ORDERS}/closing"
    await asyncio.gather(*(asking.start(ORDERS, name) for name in names))
    await asking.call(trigger, schedule)
    assert await other.ended() == -signal.SIGKILL
    assert (await asking.get(SCHEDULES, schedule)).state["fan_out"]["sent"] == 100
    await engine(orders(), **read_options(json.dumps(QUICK)))
    found = await until(lambda: asking.get(SCHEDULES, schedule), lambda found: bool(found.history))
    assert [each.payload["to"] for each in found.history] == ["230 processes"]

    async def told() -> list[int]:
        return [each.state for each in (await asking.search(namespace=ORDERS, limit=1000)).items]

    assert await until(told, lambda states: min(states) > 0) == [1] * 230
