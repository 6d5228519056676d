"""Tasks that handlers make: what would end the program is an error of the task."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from progressor.deployment.loops import new_loop
from progressor.handlers.running.made_tasks import contain_tasks_of
from progressor.handlers.running.waits import Lending, RunningStep
from progressor.model import Task, TaskType

LOOPS = {"asyncio": asyncio.new_event_loop, "serving": new_loop() or asyncio.new_event_loop}
Handler = Callable[[], Coroutine[Any, Any, object]]


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner


async def in_step(handler: Callable[[], Awaitable[Any]]) -> Any:
    async def nothing(namespace: str, process_no: int) -> bool:
        return False

    contain_tasks_of(asyncio.get_running_loop())
    with RunningStep(Lending((), (), nothing), Task("billing", "acme", 1, TaskType.CALL)):
        return await handler()


async def leave() -> None:
    await asyncio.sleep(0)
    sys.exit(3)


async def leave_at_once() -> None:
    sys.exit(3)


async def leave_when_cancelled() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        sys.exit(3)


async def interrupt() -> None:
    raise KeyboardInterrupt


async def gathers() -> None:
    await asyncio.gather(leave())


async def gathers_another() -> None:
    await asyncio.gather(gathers())


async def waits() -> None:
    await asyncio.wait_for(asyncio.ensure_future(leave_at_once()), 20)


async def cancels() -> None:
    made = asyncio.create_task(leave_when_cancelled())
    await asyncio.sleep(0)
    made.cancel()
    await made


async def interrupts() -> None:
    await asyncio.create_task(interrupt(), name="interrupts")


@pytest.mark.parametrize("handler", [gathers, gathers_another, waits, cancels])
def test_sys_exit_in_a_task_is_an_error_of_it(runner: asyncio.Runner, handler: Handler) -> None:
    """The handler that awaits the task gets it, and the loop goes on."""
    with pytest.raises(RuntimeError, match="a task of the handler raised SystemExit") as raised:
        runner.run(in_step(handler))
    assert isinstance(raised.value.__cause__, SystemExit)


def test_an_interrupt_in_a_task_is_an_error_of_it(runner: asyncio.Runner) -> None:
    """One that the code raises, as the runner's handler of Ctrl-C had no part in it."""
    with pytest.raises(RuntimeError, match="a task of the handler raised KeyboardInterrupt"):
        runner.run(in_step(interrupts))


def test_ctrl_c_in_a_task_ends_the_program(runner: asyncio.Runner) -> None:
    """It is for those who run the worker, whatever code it meets."""

    async def interrupted() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    async def handler() -> None:
        await asyncio.create_task(interrupted())

    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            runner.run(in_step(handler))
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_exit_by_a_signal_ends_the_program(runner: asyncio.Runner) -> None:
    """Where an application handles SIGTERM by `sys.exit()`, that ends it, whatever code it meets."""

    async def told_to_end() -> None:
        signal.raise_signal(signal.SIGTERM)

    async def handler() -> None:
        await asyncio.create_task(told_to_end())

    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with pytest.raises(SystemExit):
            runner.run(in_step(handler))
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_group_gathers_it_with_the_others(runner: asyncio.Runner) -> None:
    """As any error of a task: the others of the group are cancelled, and the group raises."""
    ended: list[str] = []

    async def waits_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def handler() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_ever())
            group.create_task(leave())

    with pytest.raises(ExceptionGroup):
        runner.run(in_step(handler))
    assert ended == ["cancelled"]


def test_other_tasks_are_left_alone(runner: asyncio.Runner) -> None:
    """What an application does outside of all steps may end it."""

    async def application() -> None:
        contain_tasks_of(asyncio.get_running_loop())
        await asyncio.create_task(leave())

    with pytest.raises(SystemExit):
        runner.run(application())


def test_a_task_is_what_it_was(runner: asyncio.Runner) -> None:
    """It answers, has its name and its context, shows its code, and may be cancelled before it begins."""

    async def answers() -> int:
        await asyncio.sleep(0)
        return 7

    async def handler() -> None:
        made = asyncio.create_task(answers(), name="answers")
        assert made.get_name() == "answers"
        assert "answers() running at" in repr(made)
        assert await made == 7
        never = asyncio.create_task(answers())
        never.cancel()
        await asyncio.wait([never])
        assert never.cancelled()

    runner.run(in_step(handler))


def test_the_factory_of_an_application_makes_them(runner: asyncio.Runner) -> None:
    """Its own tasks and those of handlers are of its class, however many engines enter its loop."""

    class Own(asyncio.Task[Any]):
        pass

    def own(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Own:
        return Own(coroutine, loop=loop, **options)

    async def handler() -> object:
        made = asyncio.create_task(leave())
        assert type(made) is Own
        return await asyncio.gather(made, return_exceptions=True)

    runner.get_loop().set_task_factory(own)
    contain_tasks_of(runner.get_loop())
    factory = runner.get_loop().get_task_factory()
    (error,) = runner.run(in_step(handler))
    assert isinstance(error, RuntimeError)
    assert runner.get_loop().get_task_factory() is factory
