"""Asyncio tasks that handlers make: none of them ends the program.

Rule: asyncio raises a SystemExit or KeyboardInterrupt of any task out of the event loop, past the handler
that awaits the task. In a task that code of a step makes it becomes a RuntimeError, which is an error of
that task as any other. What a signal raised, such as Ctrl-C, stays what it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from progressor.handlers.running.interrupts import is_of_signal
from progressor.handlers.running.waits import calling_step

T = TypeVar("T")


def contain_tasks_of(loop: asyncio.AbstractEventLoop) -> None:
    """Contain the tasks that handlers make on this loop from now on, around a task factory that it has."""
    before: Any = loop.get_task_factory()
    if not isinstance(before, _Containing):
        factory: Any = _Containing(before or asyncio.Task)
        loop.set_task_factory(factory)


class _Containing:
    """A task factory, around another one, that contains the tasks made by code of a step.

    It stays on its loop when the engine is gone: others may have set theirs around it since.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> Any:
        if calling_step() is not None:
            coroutine = _Contained(coroutine)
        if self._make is asyncio.Task:
            return asyncio.Task(coroutine, loop=loop, **options)
        return self._make(loop, coroutine, **options)


class _Contained(Coroutine[Any, Any, T]):
    """A coroutine around that of a task, whose attributes it has.

    No `async def`: a task that is cancelled before it begins would leave the inner one without a start.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Coroutine[Any, Any, T]) -> None:
        self._inner = inner

    def send(self, value: Any) -> Any:
        return _contained(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return _contained(self._inner.throw, *error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _contained(go_on: Callable[..., Any], *given: Any) -> Any:
    """Run a coroutine up to its next pause; only what a signal raised may leave it to end the program."""
    try:
        return go_on(*given)
    except (SystemExit, KeyboardInterrupt) as error:
        if is_of_signal():
            raise
        kind = "SystemExit" if isinstance(error, SystemExit) else "KeyboardInterrupt"
        raise RuntimeError(f"a task of the handler raised {kind}") from error
