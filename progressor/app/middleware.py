"""Middleware: code of the user around the run of every handler.

Rule: it may log, measure and refuse. It runs in the step, so its errors count as those of the handler, and
`step_timeout` limits both together. It changes nothing: it returns what `call_next` returned.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from progressor.errors import InvalidRequest
from progressor.handlers.function import is_async
from progressor.handlers.handler import Handler
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.handlers.timers import TIMER_CALLS
from progressor.model import Intent, Task, TaskType

_Run = Callable[[], Coroutine[Any, Any, Intent]]


class StepView(NamedTuple):
    """A step as middleware sees it: the task and its process, without arguments and state.

    `name` is that of the call, for calls and notices, or of the timer. `attempt` is 1 for the first run; a
    timer that is tried again, or a task that lost its worker, has a higher one.
    """

    namespace: str
    process_id: str
    task_id: int
    task_type: TaskType
    name: str | None
    attempt: int


class CallNext(Protocol):
    """The next middleware, or the handler: call it once, and return its result."""

    def __call__(self, step: StepView = ..., /) -> Awaitable[Intent]:
        """Run the rest of the step; the result is the engine's, to be returned as it is."""
        ...


Middleware = Callable[[StepView, CallNext], Awaitable[Intent]]


class MiddlewareFault(Exception):
    """A middleware called next twice, or returned something else than the result of its `call_next`."""


def check_middleware(given: object) -> tuple[Middleware, ...]:
    """Return the middleware of an app; InvalidRequest unless it is an iterable of async functions."""
    if not isinstance(given, Iterable):
        raise InvalidRequest(
            f"middleware must be a list of async functions, not {type(given).__name__}", field="middleware"
        )
    layers = tuple(given)
    for each in layers:
        if isinstance(each, type) or not is_async(each) or inspect.isasyncgenfunction(each):
            raise InvalidRequest(
                "middleware must be `async def (step, call_next)`, not "
                f"{getattr(each, '__qualname__', type(each).__name__)}",
                field="middleware",
            )
    return layers


def layered(namespace: Namespace[Any], middleware: Sequence[Middleware]) -> Handler:
    """Return the handler of a namespace with middleware around it: the namespace itself without any."""
    return _Layers(namespace, middleware) if middleware else namespace


class _Layers:
    """A handler that runs middleware around the functions of a namespace."""

    def __init__(self, namespace: Namespace[Any], middleware: Sequence[Middleware]) -> None:
        self._namespace = namespace
        self._inwards = tuple(reversed(middleware))

    async def process(self, task: Task, process: Process[Any], /) -> Intent:
        """Run the middleware and the handler; a timer that is set from outside runs no handler."""
        run: _Run = partial(self._namespace.process, task, process)
        if task.name in TIMER_CALLS:
            return await run()
        step = StepView(
            task.namespace,
            task.process_id,
            task.task_id,
            task.task_type,
            task.name,
            task.attempts_count + 1,
        )
        for layer in self._inwards:
            run = partial(_through, layer, step, run)
        profile = self._namespace.profile_of(task.task_type, task.name)
        # A middleware that waits keeps the transaction of a fused request open as a handler would.
        return await (run() if profile is None else profile.watched(run))


async def _through(layer: Middleware, step: StepView, inner: _Run) -> Intent:
    following = _Next(layer, inner)
    intent = await layer(step, following)
    if intent is None or intent is not following.intent:
        raise MiddlewareFault(
            f"middleware {_name(layer)} must return what its call_next returned, or raise"
        )
    return intent


class _Next:
    """The `call_next` of one middleware in one step."""

    __slots__ = ("_inner", "_layer", "_was_called", "intent")

    def __init__(self, layer: Middleware, inner: _Run) -> None:
        self._layer = layer
        self._inner = inner
        self._was_called = False
        self.intent: Intent | None = None

    def __call__(self, _step: StepView | None = None, /) -> Awaitable[Intent]:
        if self._was_called:
            raise MiddlewareFault(f"middleware {_name(self._layer)} called call_next twice")
        self._was_called = True
        return self._run()

    async def _run(self) -> Intent:
        self.intent = await self._inner()
        return self.intent


def _name(layer: Middleware) -> str:
    return getattr(layer, "__qualname__", type(layer).__qualname__)
