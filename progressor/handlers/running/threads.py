"""Threads of sync handlers: each handler has one, at once.

Rule: no handler waits for a thread. The slots of the namespaces, which a handler keeps until it returns,
bound their number. A handler that blocks for ever delays neither the event loop nor the exit of the OS
process: the threads are daemons, which those of `ThreadPoolExecutor` are not.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

from progressor.handlers.running.forks import end_child
from progressor.handlers.running.waits import running_step

# Seconds; a thread that was idle for so long ends, and frees its own resources, such as a connection.
_IDLE = 60.0

_Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class NoThread(BaseException):
    """The operating system gives no more threads; the function that needed one was not begun.

    Not an Exception: middleware that refuses or fails the step at every Exception leaves this one alone.
    """


class Threads:
    """Daemon threads, as many as there are functions at once; the one used last is used first."""

    def __init__(self, *, idle: float = _IDLE) -> None:
        self._idle_for = idle
        self._idle: list[SimpleQueue[_Work]] = []
        self._lock = Lock()

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Begin to run a function in a thread; NoThread if there is none."""
        future: Future[Any] = Future()
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is not None:
            inbox.put((future, function, args))
        else:
            inbox = SimpleQueue()
            inbox.put((future, function, args))
            _start(Thread(target=self._run, args=(inbox,), name="progressor handler", daemon=True))
        return future

    def _run(self, inbox: SimpleQueue[_Work]) -> None:
        while self._run_one(inbox):
            pass

    def _run_one(self, inbox: SimpleQueue[_Work]) -> bool:
        """Wait for a function and run it; return False if none came for the idle time."""
        try:
            future, function, args = inbox.get(timeout=self._idle_for)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    return False
            # `submit` took this thread meanwhile, and its function is on the way.
            future, function, args = inbox.get()
        begun = future.set_running_or_notify_cancel()
        result, error = function_in_thread(function, args) if begun else (None, None)
        # Before the result is set: the caller that goes on with it may find this thread idle.
        with self._lock:
            self._idle.append(inbox)
        if error is not None:
            future.set_exception(error)
        elif begun:
            future.set_result(result)
        return True


def _start(thread: Thread) -> None:
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread(str(error)) from error


def function_in_thread(
    function: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    """Call a function, and return its result or its error, whose traceback has a frame of this one."""
    try:
        return function(*args), None
    except (StopIteration, GeneratorExit) as error:
        # A future cannot carry a StopIteration; a GeneratorExit would close the coroutines that await it.
        return None, RuntimeError(f"the handler raised {error!r}")
    except BaseException as error:  # noqa: BLE001  # it belongs to the caller that waits
        return None, error
    finally:
        end_child()


@cache
def _threads_of(_pid: int) -> Threads:
    # A fork copies the idle list, but none of its threads; uWSGI forks without Python's hooks.
    return Threads()


async def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a sync function in a thread, with this task's context variables; NoThread if there is none."""
    context = contextvars.copy_context()
    future = _threads_of(os.getpid()).submit(context.run, function, *args)
    step = running_step()
    if step is not None:
        step.thread = future
    result = await asyncio.wrap_future(future)
    return await result if inspect.isawaitable(result) else result
