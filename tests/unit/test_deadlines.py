"""One timer for all steps, and each of them ends at its own time."""

import asyncio
from datetime import timedelta

import pytest

from progressor.handlers.deadlines import Deadline, Deadlines

SHORT = timedelta(milliseconds=20)
LONG = timedelta(hours=1)


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
    assert all(ran is not None and ran >= SHORT.total_seconds() - 0.001 for ran in times)


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


async def test_many_steps_set_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each step costs is a place in a dict."""
    loop, timers = asyncio.get_running_loop(), []
    call_at = loop.call_at

    def counted(when: float, *args: object, **options: object) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_at", counted)
    deadlines, done = Deadlines(LONG), asyncio.Event()
    done.set()
    await asyncio.gather(*(_run(deadlines, done) for _ in range(100)))
    assert len(timers) == 1


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
