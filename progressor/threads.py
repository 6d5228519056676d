"""Where sync handlers run: a bounded pool of threads, shared by all namespaces of this OS process.

Rule: a handler that blocks for ever costs one thread, and neither the event loop nor the exit of
the process: the threads are daemons, which those of `ThreadPoolExecutor` are not.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any

MAX_THREADS = 32

_Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class DaemonThreads(Executor):
    """Starts a thread only when none is idle, and at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work: SimpleQueue[_Work] = SimpleQueue()
        self._idle = Semaphore(0)
        self._started = 0
        self._lock = Lock()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._work.put((future, function, args, kwargs))
        if not self._idle.acquire(blocking=False):
            self._start_one()
        return future

    def grow_to(self, limit: int) -> None:
        """Allow more threads; never fewer."""
        self._limit = max(self._limit, limit)

    def _start_one(self) -> None:
        with self._lock:
            if self._started >= self._limit:
                return
            self._started += 1
            number = self._started
        Thread(target=self._run, name=f"progressor-handler-{number}", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._run_one(*self._work.get())
            self._idle.release()

    @staticmethod
    def _run_one(
        future: Future[Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = function(*args, **kwargs)
        except StopIteration as error:
            # A future cannot carry it.
            future.set_exception(RuntimeError(f"the handler raised {error!r}"))
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits
            future.set_exception(error)
        else:
            future.set_result(result)


_pool = DaemonThreads(1)


def allow_threads(concurrency: int) -> None:
    """Let the pool serve a namespace of this concurrency."""
    _pool.grow_to(min(MAX_THREADS, concurrency))


async def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a sync function in the pool, with this task's context variables."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    result = await loop.run_in_executor(_pool, context.run, function, *args)
    return await result if inspect.isawaitable(result) else result


def _forget_threads_of_parent() -> None:
    global _pool  # noqa: PLW0603  # a fork copies the pool but none of its threads
    _pool = DaemonThreads(MAX_THREADS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads_of_parent)
