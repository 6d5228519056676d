"""Background tasks and threads: none of them ends unseen.

Rule: a task or a thread that nobody awaits is started here, and a callback is watched from here. A part
that should run for good begins again after a failure, a little later each time; every failure is logged
with its cause and counted. A cancellation that its owner did not ask for is a failure too.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from progressor import metrics
from progressor.loggers import Logger

P = ParamSpec("P")
T = TypeVar("T")

log = Logger("progressor.supervision")

# Seconds; a part that has worked for twice the longest pause begins again with the first one.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# Seconds; tasks that have not ended so long after their cancellation are cancelled once more.
_PROD = 1.0


class Background:
    """The background tasks of one owner, on one event loop; `part` is their name in logs and metrics."""

    def __init__(self, **where: object) -> None:
        self._where = where
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        # The owner's context: a task must not keep that of the caller that happens to begin it.
        self._context = contextvars.copy_context()

    def keep(self, part: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this until it returns or `stop` is called; after a failure it begins again."""
        self.begin(part, self._kept(part, run))

    def begin(self, part: str, work: Coroutine[Any, Any, None]) -> None:
        """Run this once; after `stop` it is closed and does not begin."""
        if self._stopping:
            work.close()
            return
        expect(part)
        context = self._context.copy()
        task = asyncio.create_task(work, name=f"progressor {part}", context=context)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, part))

    def _ended(self, part: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        report(part, task, **self._where)

    async def _kept(self, part: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        pauses = Pauses()
        while True:
            try:
                return await run()
            except asyncio.CancelledError as error:
                if _is_cancelled_from_outside():
                    raise
                log_failed(part, error, **self._where)
            except Exception as error:  # noqa: BLE001 - logged, counted, and begun again
                log_failed(part, error, **self._where)
            if self._stopping:
                return None
            await asyncio.sleep(pauses.next())

    async def ended(self) -> None:
        """Wait until all tasks have ended by themselves."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Cancel all tasks, and return when they have ended; none begins after that."""
        self._stopping = True
        await end_all(self._tasks)


async def end_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel these until all have ended; a callback of their owner takes each that ends out of `tasks`."""
    while tasks:
        for task in tasks:
            task.cancel()
        # A task, or what it awaits, may swallow a cancellation.
        await asyncio.wait(tasks, timeout=_PROD)


def keep_thread(part: str, run: Callable[[], None], *, until: threading.Event) -> threading.Thread:
    """Run this in a thread until it returns; after a failure it begins again, unless `until` is set.

    The thread does not hold up the end of the OS process.
    """

    def kept() -> None:
        pauses = Pauses()
        while True:
            try:
                return run()
            except BaseException as error:  # noqa: BLE001 - a thread has no caller for it
                log_failed(part, error)
            if until.wait(pauses.next()):
                return None

    expect(part)
    thread = threading.Thread(target=kept, name=f"progressor {part}", daemon=True)
    thread.start()
    return thread


async def in_thread(part: str, work: Callable[[], T]) -> T:
    """Return what this returns, from a thread of its own; raise its error.

    Who is cancelled does not wait for it, and neither does the end of the loop or of the OS process: it may
    hang as long as a server does that does not answer. What it returns or raises then is dropped.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not done.done():
            outcome()

    def run() -> None:
        outcome: Callable[[], None]
        try:
            outcome = partial(done.set_result, work())
        except StopIteration as error:
            # A future cannot carry it.
            outcome = partial(done.set_exception, RuntimeError(f"{part}: raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            outcome = partial(done.set_exception, error)
        with suppress(RuntimeError):
            # Of a loop that is closed, as nobody waits any more.
            loop.call_soon_threadsafe(settle, outcome)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=[run], name=f"progressor {part}", daemon=True).start()
    return await done


def watched(part: str, callback: Callable[P, object]) -> Callable[P, None]:
    """Return the callback with its errors logged and counted: a loop or a thread has no caller for them."""

    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            callback(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - logged and counted
            log_failed(part, error)

    return run


class Pauses:
    """The pauses after the failures of one part that should run for good, in seconds."""

    def __init__(self) -> None:
        self._pause = _FIRST_PAUSE
        self._began = time.monotonic()

    def next(self) -> float:
        now = time.monotonic()
        pause = _FIRST_PAUSE if now - self._began > 2 * _LONGEST_PAUSE else self._pause
        self._pause = min(2 * pause, _LONGEST_PAUSE)
        self._began = now
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


def expect(part: str) -> None:
    """Show the part's failures from 0 on: Prometheus sees no increase in a series that begins at 1."""
    metrics.BACKGROUND_FAILURES.labels(part)


def report(part: str, ended: asyncio.Task[Any], **where: object) -> None:
    """Log and count the failure of a task that nobody awaits, if it failed or others cancelled it."""
    if ended.cancelled():
        if not ended.cancelling():
            log_failed(part, asyncio.CancelledError("not by its owner"), **where)
    elif (error := ended.exception()) is not None:
        log_failed(part, error, **where)


def log_failed(part: str, error: BaseException, **where: object) -> None:
    """Log and count the failure of a background part."""
    metrics.BACKGROUND_FAILURES.labels(part).inc()
    log.error("background task failed", exc_info=error, extra={"part": part, **where})


def _is_cancelled_from_outside() -> bool:
    running = asyncio.current_task()
    return running is None or running.cancelling() > 0
