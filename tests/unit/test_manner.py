"""Who watches a coroutine changes nothing of it: it is sent and thrown what it would be by `await`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from progressor import Namespace
from progressor.handlers.handler_profile import MOST_COMPUTED, Fuse, HandlerProfile
from progressor.model import Intent, Task, TaskType

Run = Callable[[list[str]], Coroutine[Any, Any, Any]]
Await = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]


def plainly(running: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
    return running


def watched(running: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
    return HandlerProfile().watched(lambda: running)


async def returns(said: list[str]) -> int:
    said.append("ran")
    return 7


async def raises(said: list[str]) -> None:
    said.append("ran")
    raise KeyError("mine")


async def waits_and_returns(said: list[str]) -> int:
    for _ in range(3):
        await asyncio.sleep(0)
        said.append("went on")
    return 7


async def waits_and_raises(said: list[str]) -> None:
    await asyncio.sleep(0)
    raise KeyError("mine")


async def waits_for_a_failure(said: list[str]) -> str:
    failing = asyncio.get_running_loop().create_future()
    failing.get_loop().call_soon(failing.set_exception, ValueError("theirs"))
    try:
        await failing
    except ValueError as error:
        said.append(str(error))
        await asyncio.sleep(0)
    return "caught"


async def waits_for_a_result(said: list[str]) -> int:
    coming: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    coming.get_loop().call_soon(coming.set_result, 5)
    return await coming


async def waits_for_ever(said: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        said.append("ended")


async def is_slow_to_end(said: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        said.append("ended")
        raise


async def swallows(said: list[str]) -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.sleep(0)
    return "swallowed"


async def turns_it_into_another(said: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise KeyError("mine") from None


async def cancels_itself(said: list[str]) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    said.append("going on")
    await asyncio.sleep(0)


async def runs_out_of_time(said: list[str]) -> str:
    try:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    except TimeoutError:
        return "out of time"
    return "in time"


ENDING = [returns, raises, waits_and_returns, waits_and_raises, waits_for_a_failure, waits_for_a_result]
ENDING += [cancels_itself, runs_out_of_time]
WAITING = [waits_for_ever, is_slow_to_end, swallows, turns_it_into_another]


async def told(run: Run, through: Await, *, cancelled: bool) -> tuple[Any, list[str]]:
    said: list[str] = []

    async def awaiting() -> Any:
        return await through(run(said))

    task = asyncio.create_task(awaiting())
    if cancelled:
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait({task})
    if task.cancelled():
        return "cancelled", said
    error = task.exception()
    return (task.result() if error is None else repr(error)), said


@pytest.mark.parametrize("run", ENDING, ids=lambda run: run.__name__)
async def test_it_ends_as_it_would(run: Run) -> None:
    """Its value, its error, and what it was sent or thrown on its way."""
    assert await told(run, watched, cancelled=False) == await told(run, plainly, cancelled=False)


@pytest.mark.parametrize("run", WAITING, ids=lambda run: run.__name__)
async def test_a_cancellation_is_its_own(run: Run) -> None:
    """It may end, take its time, go on, or raise something else."""
    assert await told(run, watched, cancelled=True) == await told(run, plainly, cancelled=True)


@pytest.mark.parametrize("through", [plainly, watched])
async def test_it_is_closed_with_its_awaiter(through: Await) -> None:
    """Closed while it waits, it runs its `finally`."""
    said: list[str] = []

    async def awaiting() -> None:
        await through(waits_for_ever(said))

    running = awaiting()
    running.send(None)
    running.close()
    assert said == ["ended"]


@pytest.mark.parametrize(
    ("run", "waits"),
    [(returns, False), (raises, False), (waits_and_returns, True), (waits_for_a_result, True)],
)
async def test_whether_it_waits_is_learned(run: Run, waits: bool) -> None:
    """By its first turn, however it ends."""
    profile = HandlerProfile()
    with contextlib.suppress(KeyError):
        await profile.watched(run, [])
    assert (profile.was_run, profile.waits) == (True, waits)


@pytest.mark.parametrize(
    ("stated", "fuse", "seconds"),
    [
        (None, "never", None),
        (True, "never", None),
        (False, "always", None),
        (False, "learned", None),
        (None, "always", 0.0),
        (True, "learned", 0.0),
        (None, "learned", None),
    ],
)
def test_who_says_so(stated: bool | None, fuse: Fuse, seconds: float | None) -> None:
    """The engine's `never` and the author's `False` are the last word; unknown, it is not run so."""
    assert HandlerProfile(stated=stated).fusable_seconds(fuse) == seconds


def test_what_it_computes_is_forgotten_slowly() -> None:
    """One long run keeps it out for some runs, not for ever."""
    profile = HandlerProfile()
    profile.was_run, profile.seconds = True, MOST_COMPUTED * 4
    assert profile.fusable_seconds("learned") is None
    runs = 0
    while profile.fusable_seconds("learned") is None:
        with pytest.raises(StopIteration):
            profile.watched(returns, []).__await__().send(None)
        runs += 1
        assert runs < 100
    assert runs > 5


class Answering:
    """A raw handler whose answers are awaitable, and no coroutines."""

    def process(self, task: Any, process: Any, /) -> Any:
        answer: asyncio.Future[Intent] = asyncio.get_running_loop().create_future()
        answer.set_result(Intent())
        return answer


async def test_what_is_no_coroutine_is_awaited(make_task: Callable[..., Task]) -> None:
    """A raw handler may answer with any awaitable; nothing is known of it, so it counts as waiting."""
    handler: Any = Answering()
    namespace = Namespace("shop.order", handler=handler)
    process: Any = None
    assert await namespace.process(make_task(), process) == Intent()
    profile = namespace.profile_of(TaskType.CALL, None)
    assert profile is not None
    assert profile.waits
