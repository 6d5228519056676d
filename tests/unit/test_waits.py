"""Who waits for whom: circles are found, whatever their way, and only circles."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from progressor.errors import CallCycle
from progressor.handlers.running.waits import Lending, RunningStep, running_step, waiting_for
from progressor.loggers import message_of
from progressor.model import Task, TaskType

PLACE = ("host", "db", "schema")
TASK = Task("ns", "a", 1, TaskType.CALL)


async def runs_nothing(_namespace: str, _process_no: int) -> bool:
    return False


def none_served() -> Lending:
    return Lending(PLACE, (), runs_nothing)


def enter(stack: ExitStack, process_id: str, *targets: str, place: tuple[str, ...] = PLACE) -> RunningStep:
    """A step of a process that waits for others; it is left with the stack."""
    with RunningStep(none_served(), Task("ns", process_id, 1, TaskType.CALL)) as step:
        for target in targets:
            stack.enter_context(waiting_for(place, "ns", target))
    # Its code runs elsewhere; only that it goes on matters here.
    step.ended = False
    return step


async def test_outside_of_steps_nobody_is_concerned() -> None:
    """A caller that is no handler waits for whom it likes, several times."""
    with waiting_for(PLACE, "ns", "a"), waiting_for(PLACE, "ns", "a"):
        assert running_step() is None


async def test_a_step_waits_for_itself() -> None:
    """The shortest circle."""
    with RunningStep(none_served(), TASK), pytest.raises(CallCycle) as refused:
        waiting_for(PLACE, "ns", "a").__enter__()
    assert refused.value.processes == ("'ns/a'", "'ns/a'")
    assert refused.value.field == "process_id"


async def test_a_long_way_round() -> None:
    """A circle over steps that wait for several others at once."""
    with ExitStack() as stack:
        enter(stack, "b", "x", "c")
        enter(stack, "c", "y", "d", "z")
        enter(stack, "d", "a")
        with RunningStep(none_served(), TASK), pytest.raises(CallCycle) as refused:
            stack.enter_context(waiting_for(PLACE, "ns", "b"))
    assert refused.value.processes == ("'ns/a'", "'ns/b'", "'ns/c'", "'ns/d'", "'ns/a'")


async def test_ways_that_meet_are_no_circle() -> None:
    """Two that wait for the same third do not wait for each other."""
    with ExitStack() as stack:
        enter(stack, "b", "d")
        enter(stack, "c", "d")
        with RunningStep(none_served(), TASK):
            stack.enter_context(waiting_for(PLACE, "ns", "b"))
            stack.enter_context(waiting_for(PLACE, "ns", "c"))
            stack.enter_context(waiting_for(PLACE, "ns", "d"))


async def test_what_is_over_closes_no_circle() -> None:
    """Neither a wait that ended nor the wait of a step that ended."""
    with ExitStack() as stack:
        with ExitStack() as over:
            enter(over, "b", "a")
        left = enter(stack, "c", "a")
        left.ended = True
        with RunningStep(none_served(), TASK):
            stack.enter_context(waiting_for(PLACE, "ns", "b"))
            stack.enter_context(waiting_for(PLACE, "ns", "c"))


async def test_another_database_is_another_process() -> None:
    """Of the same name, but not the same."""
    with RunningStep(none_served(), TASK), waiting_for(("elsewhere",), "ns", "a"):
        pass


async def test_a_step_ends_for_its_code_too() -> None:
    """What a handler leaves behind finds no step."""
    with RunningStep(none_served(), TASK) as step:
        assert running_step() is step
        go_on, seen = asyncio.Event(), []

        async def look() -> None:
            await go_on.wait()
            seen.append(running_step())

        looking = asyncio.create_task(look())
    go_on.set()
    await looking
    assert seen == [None]


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.001)


async def test_a_step_lends_one_slot_at_a_time() -> None:
    """However many processes a step waits for at once, its slot runs one of them."""
    running, most, gate = 0, 0, asyncio.Event()

    async def run_next(_namespace: str, process_no: int) -> bool:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await gate.wait()
        running -= 1
        return False

    lending = Lending(PLACE, {"ns"}, run_next)
    with RunningStep(lending, TASK), ExitStack() as stack:
        for number in range(5):
            stack.enter_context(waiting_for(PLACE, "ns", f"b{number}")).lend(number)
        await until(lambda: running)
        gate.set()
        await asyncio.sleep(0)
    assert await lending.stop()
    assert most == 1


async def test_it_lends_again_at_once_while_there_is_something_to_run() -> None:
    """The mailbox of what is waited for is run step by step, up to the answer."""
    ran: list[int] = []
    over = asyncio.Event()

    async def run_next(_namespace: str, process_no: int) -> bool:
        ran.append(process_no)
        if len(ran) == 3:
            over.set()
        await asyncio.sleep(0)
        return True

    lending = Lending(PLACE, {"ns"}, run_next)
    with RunningStep(lending, TASK), waiting_for(PLACE, "ns", "b") as wait:
        wait.lend(7)
        await over.wait()
    assert await lending.stop()
    assert set(ran) == {7}


async def test_a_defect_in_lending_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and tried again."""
    tries: list[int] = []
    again = asyncio.Event()

    async def run_next(_namespace: str, process_no: int) -> bool:
        tries.append(process_no)
        if len(tries) == 1:
            raise KeyError("a defect")
        again.set()
        return False

    lending = Lending(PLACE, {"ns"}, run_next)
    with RunningStep(lending, TASK), waiting_for(PLACE, "ns", "b") as wait:
        wait.lend(1)
        await again.wait()
    assert await lending.stop()
    assert "background task failed" in map(message_of, caplog.records)


async def test_a_loan_that_does_not_end_is_given_up() -> None:
    """At the stop, when the wait is over and its step is not."""

    begun = []

    async def run_next(_namespace: str, process_no: int) -> bool:
        begun.append(process_no)
        await asyncio.Event().wait()
        return True

    lending = Lending(PLACE, {"ns"}, run_next)
    with RunningStep(lending, TASK), waiting_for(PLACE, "ns", "b") as wait:
        wait.lend(1)
        await until(lambda: begun)
    assert not await lending.stop()


async def test_only_what_the_engine_serves_is_helped() -> None:
    """Of another database, or another namespace, the engine can run nothing."""
    lending = none_served()
    with RunningStep(lending, TASK), waiting_for(PLACE, "ns", "b") as wait:
        wait.lend(1)
        await asyncio.sleep(0)
    assert not lending._background._tasks


def test_a_forked_child_belongs_to_no_step() -> None:
    """What a handler forks is a process of its own: nobody waits for it, and it knows of no waits."""
    code = """
import asyncio, os
from progressor.handlers.running import waits
from progressor.model import Task, TaskType

TASK = Task("ns", "a", 1, TaskType.CALL)

async def step():
    lending = waits.Lending(("here",), (), None)
    with waits.RunningStep(lending, TASK), waits.waiting_for(("here",), "ns", "b"):
        with waits._lock:
            child = os.fork()
            if child == 0:
                alone = waits.running_step() is None and not waits._waits
                os._exit(0 if alone and waits._lock.acquire(blocking=False) else 1)
        assert waits.running_step() is not None
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

asyncio.run(step())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "0\n"
