"""The contexts of steps: a chain of them is one asyncio task, but no handler sees what an earlier one set.

Rule: a handler runs in a copy of the context of its chain, so what it sets there ends with its step. To
make the copy costs less than to find out whether anything was set.
"""

from __future__ import annotations

import contextvars
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def in_own_context(running: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a copy of the present context."""
    run = contextvars.copy_context().run
    try:
        waited_for = run(running.send, None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    return await rest_of(running, waited_for, run)


def _plainly(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


@types.coroutine
def rest_of(
    running: Coroutine[Any, Any, T], waited_for: Any, run: Callable[..., Any] = _plainly
) -> Generator[Any, Any, T]:
    """Go on as `await running` would, after the coroutine has begun and waits; `run` calls its methods."""
    try:
        while True:
            try:
                sent = yield waited_for
            except GeneratorExit:
                run(running.close)
                raise
            except BaseException as error:  # noqa: BLE001 - a cancellation too is the coroutine's
                waited_for = run(running.throw, error)
            else:
                waited_for = run(running.send, sent)
    except StopIteration as ended:
        result: T = ended.value
        return result
