"""Functions as addresses: a decorated function stands for its namespace, and for its name there.

Rule: a function is marked by its decorators alone, so a client can send it a request without its namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, NamedTuple, TypeVar

from progressor.errors import InvalidRequest
from progressor.handlers.process import Process
from progressor.model import TaskType

A = TypeVar("A")
R = TypeVar("R")

# The forms of a handler, for the overloads of clients. Keyword-only parameters of a handler are resources.
Async = Callable[Concatenate[Process[Any], A, ...], Coroutine[Any, Any, R]]
"""An `async def` that takes arguments."""
AsyncAlone = Callable[[Process[Any]], Coroutine[Any, Any, R]]
"""An `async def` that can be called without arguments and resources."""
AsyncAny = Callable[Concatenate[Process[Any], ...], Coroutine[Any, Any, R]]
"""An `async def`."""
Plain = Callable[Concatenate[Process[Any], A, ...], R]
"""A `def` that takes arguments."""
PlainAlone = Callable[[Process[Any]], R]
"""A `def` that can be called without arguments and resources."""
PlainAny = Callable[Concatenate[Process[Any], ...], R]
"""A `def`."""

_MARK = "__progressor_serves__"
_DECORATORS = {TaskType.INIT: "init", TaskType.CALL: "call", TaskType.REPAIR: "repair"}


class ArgumentsMissing:
    """The type of a request without the arguments that its function takes; it cannot be awaited.

    It has no values: only type checkers meet it.
    """


class Served(NamedTuple):
    """A task type that a function serves in a namespace.

    `name` is the name of a call; `read_answer` reads the JSON of an answer as the function declares it, or
    raises InvalidAnswer. `home` is the Namespace itself.
    """

    namespace: str
    task_type: TaskType
    name: str | None
    read_answer: Callable[[bytes], Any]
    home: Any = None


def mark(target: Callable[..., Any], served: Served) -> None:
    """Note on a function what it serves; one that takes no attributes can be addressed by strings alone."""
    try:
        setattr(target, _MARK, (*all_served_by(target), served))
    except (AttributeError, TypeError):
        # A bound method, or an object with slots.
        return


def all_served_by(target: object) -> tuple[Served, ...]:
    """Return all that a function serves."""
    return getattr(target, _MARK, ())


def served_by(target: object, task_type: TaskType) -> Served:
    """Return the task of this type that a function serves; raise InvalidRequest if none, or several."""
    label = getattr(target, "__name__", None) or f"{target!r:.80}"
    found = [each for each in all_served_by(target) if each.task_type is task_type]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidRequest(
            f"{label} serves no {task_type} of a namespace: give a function that is decorated with "
            f"@namespace.{_DECORATORS[task_type]}, or names as text",
            field="function",
        )
    places = ", ".join(sorted(".".join(filter(None, (each.namespace, each.name))) for each in found))
    raise InvalidRequest(f"{label} serves several ({places}): give the names as text", field="function")
