"""One timer for all steps, and each of them ends at its own time."""

import asyncio
import contextvars
import gc
import logging
import sys
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from progressor.handlers.perform import perform
from progressor.handlers.running import deadlines as deadlines_module
from progressor.handlers.running.deadlines import Deadline, Deadlines
from progressor.handlers.running.step_task import StepTask
from progressor.handlers.running.waits import RunningStep
from progressor.loggers import message_of
from progressor.model import Failure, Intent, Outcome

SHORT = 0.02
LONG = 3600


async def _run(deadlines: Deadlines, until: asyncio.Event) -> float | None:
    """How long it ran until its time was over; None if that was not."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        with Deadline(deadlines):
            await until.wait()
    except TimeoutError:
        return loop.time() - began
    return None


async def test_each_runs_for_the_whole_limit() -> None:
    """Those that begin later end later, in their order, and none of them early."""
    deadlines, never, ended = Deadlines(SHORT), asyncio.Event(), []

    async def step(number: int) -> float | None:
        ran = await _run(deadlines, never)
        ended.append(number)
        return ran

    steps = []
    for number in range(5):
        steps.append(asyncio.create_task(step(number)))
        await asyncio.sleep(0.005)
    times = await asyncio.gather(*steps)
    assert ended == [0, 1, 2, 3, 4]
    # A loop's clock counts in milliseconds, perhaps.
    assert all(ran is not None and ran >= SHORT - 0.001 for ran in times)


async def test_the_end_of_the_oldest_does_not_hide_the_next() -> None:
    """The timer stands for the oldest; when that has ended, it goes on to the next."""
    deadlines, done, never = Deadlines(SHORT), asyncio.Event(), asyncio.Event()
    oldest = asyncio.create_task(_run(deadlines, done))
    await asyncio.sleep(0)
    younger = asyncio.create_task(_run(deadlines, never))
    await asyncio.sleep(0)
    done.set()
    assert await oldest is None
    assert await asyncio.wait_for(younger, timeout=10) is not None


async def test_a_step_after_a_pause_is_watched_again() -> None:
    """When all have ended the timer ends too; the next step sets a new one."""
    deadlines, never = Deadlines(SHORT), asyncio.Event()
    for _ in range(3):
        assert await asyncio.wait_for(_run(deadlines, never), timeout=10) is not None


@pytest.fixture
async def handles(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.TimerHandle]:
    """The timers that are set in the loop."""
    loop, handles = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_at = loop.call_at

    def noted(when: float, *args: object, **options: object) -> asyncio.TimerHandle:
        handles.append(call_at(when, *args, **options))  # type: ignore[arg-type]
        return handles[-1]

    monkeypatch.setattr(loop, "call_at", noted)
    return handles


async def test_many_steps_set_one_timer(handles: list[asyncio.TimerHandle]) -> None:
    """What each step costs is a place in a dict."""
    deadlines, done = Deadlines(LONG), asyncio.Event()
    done.set()
    await asyncio.gather(*(_run(deadlines, done) for _ in range(100)))
    assert len(handles) == 1


async def test_a_limit_that_keeps_no_timer_leaves_nothing(handles: list[asyncio.TimerHandle]) -> None:
    """One timer for all that run at once, which goes with the last of them."""
    deadlines, done = Deadlines(LONG, keeps_timer=False), asyncio.Event()
    running = [asyncio.create_task(_run(deadlines, done)) for _ in range(3)]
    await asyncio.sleep(0)
    assert [handle.cancelled() for handle in handles] == [False]
    done.set()
    await asyncio.gather(*running)
    assert [handle.cancelled() for handle in handles] == [True]
    assert await _run(deadlines, done) is None
    assert [handle.cancelled() for handle in handles] == [True, True]


async def test_a_limit_that_keeps_no_timer_runs_out() -> None:
    """Each time anew, and beside one that has ended."""
    deadlines, never, done = Deadlines(SHORT, keeps_timer=False), asyncio.Event(), asyncio.Event()
    done.set()
    for _ in range(2):
        ended = asyncio.create_task(_run(deadlines, done))
        assert await asyncio.wait_for(_run(deadlines, never), timeout=10) is not None
        assert await ended is None


async def test_a_cancellation_of_others_stays_one() -> None:
    """Cancelled from outside in the moment in which the time is over: it is a cancellation."""
    deadlines = Deadlines(LONG)
    deadline, never = Deadline(deadlines), asyncio.Event()

    async def step() -> None:
        with deadline:
            await never.wait()

    task = asyncio.create_task(step())
    await asyncio.sleep(0)
    deadline.expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_a_step_that_ran_out_leaves_no_cancellation_behind() -> None:
    """Whatever the task does next is not cancelled, and counts as not cancelled."""
    await _run(Deadlines(SHORT), asyncio.Event())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


class Uncancellable(asyncio.Task[Any]):
    """A task of another library, which refuses to be cancelled."""

    def cancel(self, msg: Any = None) -> bool:
        raise RuntimeError("not to be cancelled")


async def test_a_task_that_cannot_be_cancelled_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged, and the next one ends at its own time."""
    deadlines, never, done = Deadlines(SHORT), asyncio.Event(), asyncio.Event()
    refusing = Uncancellable(_run(deadlines, done))
    await asyncio.sleep(0)
    assert await asyncio.wait_for(_run(deadlines, never), timeout=10) is not None
    done.set()
    await refusing
    assert "not to be cancelled" in caplog.text


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="asyncio has no time-outs for such a task there")
async def test_a_task_in_plain_python_ends_at_its_time() -> None:
    """As one of a debugger or a notebook, which is no `asyncio.Task` of C."""
    python_task: Any = vars(asyncio.tasks)["_PyTask"]
    ran = await asyncio.wait_for(python_task(_run(Deadlines(SHORT), asyncio.Event())), timeout=10)
    assert ran is not None


async def test_the_time_of_nobody_is_kept(handles: list[asyncio.TimerHandle]) -> None:
    """The timer carries no context variables of the caller that happened to set it."""
    variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable")

    class Large:
        pass

    async def caller() -> weakref.ref[Large]:
        variable.set(large := Large())
        with Deadline(deadlines):
            return weakref.ref(large)

    deadlines = Deadlines(LONG)
    large = await asyncio.create_task(caller())
    # The loop's own handle of the task goes with its turn.
    await asyncio.sleep(0)
    gc.collect()
    assert large() is None
    assert not handles[0].cancelled()


async def test_a_call_that_a_handler_left_behind_cancels_no_other_step(make_task: Any) -> None:
    """Its time is over while the next step of the same chain runs, which goes on."""
    deadlines, left = Deadlines(SHORT), list[Any]()
    lending: Any = None

    async def waits_by_hand() -> None:
        with Deadline(deadlines):
            await asyncio.Event().wait()

    async def chain() -> str:
        with RunningStep(lending, make_task()):
            left.append(waits_by_hand())
            left[0].send(None)
        with RunningStep(lending, make_task()):
            await asyncio.sleep(SHORT * 3)
        return "ran to its end"

    assert await StepTask(chain()) == "ran to its end"
    left[0].close()


async def test_a_call_in_a_task_that_outlives_its_step(make_task: Any) -> None:
    """A handler began a task of its own, in which the deadline of a call holds when the step is over."""
    over = asyncio.Event()
    lending: Any = None

    async def calls() -> None:
        await over.wait()
        with Deadline(Deadlines(SHORT)):
            await asyncio.Event().wait()

    async def chain() -> asyncio.Task[None]:
        with RunningStep(lending, make_task()):
            return asyncio.create_task(calls())

    calling = await StepTask(chain())
    over.set()
    await asyncio.wait({calling}, timeout=10)
    assert calling.done()
    assert isinstance(calling.exception(), TimeoutError)


# Handlers that do not end when their time is over


class Stubborn:
    """A handler that swallows so many cancellations, and then does as the test says."""

    def __init__(self, swallows: int, end: Callable[[], Awaitable[Intent]]) -> None:
        self.left = swallows
        self._end = end

    async def process(self, task: Any, process: Any) -> Intent:
        while self.left:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.left -= 1
        return await self._end()


async def returns() -> Intent:
    return Intent()


async def raises() -> Intent:
    raise ValueError("in its clean-up")


async def waits() -> Intent:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end is cancelled again at once."""
    monkeypatch.setattr(deadlines_module, "_AGAIN", 0.001)


@pytest.fixture
def run(make_task: Any, make_snapshot: Any) -> Callable[[Any], Awaitable[Outcome]]:
    async def run(handler: Any) -> Outcome:
        async with asyncio.timeout(10):
            return await perform(handler, make_snapshot(), make_task(), Deadlines(SHORT))

    return run


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("end", [returns, raises, waits])
async def test_what_swallows_its_cancellation_is_cancelled_again(
    end: Any, run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it ends, however it does: its time was over, says the outcome, and no cancellation is left."""
    caplog.set_level(logging.WARNING, logger="progressor.deadlines")
    handler = Stubborn(3, end)
    outcome = await run(handler)
    assert isinstance(outcome, Failure)
    assert (handler.left, outcome.error_types) == (0, ("StepTimeout", "TimeoutError"))
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    (line,) = [record for record in caplog.records if record.name == "progressor.deadlines"]
    said = vars(line)
    assert message_of(line) == "handler goes on after its time, cancelled again until it ends"
    facts = (said["levelno"], said["namespace"], said["process_id"], said["task_id"], said["task_type"])
    assert facts == (logging.WARNING, "billing", "acme", 7, "call")


@pytest.mark.usefixtures("soon")
async def test_what_has_ended_is_not_cancelled_again(run: Any) -> None:
    """The next step of the same chain has the whole of its own time."""
    await run(Stubborn(1, returns))
    # Cancelled again meanwhile, it would end in a cancellation, and early.
    ran = await _run(Deadlines(SHORT), asyncio.Event())
    assert ran is not None
    assert ran >= SHORT - 0.001


async def test_what_ends_at_once_is_not_told_of(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A handler whose clean-up is short is cancelled once, and the log has its failure alone."""
    await run(Stubborn(0, waits))
    assert [message_of(record) for record in caplog.records] == ["handler failed"]


@pytest.mark.usefixtures("soon")
async def test_a_cancellation_of_others_stays_one_among_many(make_task: Any, make_snapshot: Any) -> None:
    """Who is given up while it is cancelled again and again was cancelled from outside."""

    async def given_up() -> Intent:
        step.cancel()
        return await waits()

    handler = Stubborn(2, given_up)
    step = asyncio.create_task(perform(handler, make_snapshot(), make_task(), Deadlines(SHORT)))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(step), timeout=10)
    assert step.cancelled()
    assert step.cancelling() == 1
