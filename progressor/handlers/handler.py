"""Handlers: the user's code as the engine calls it, in bytes. The typed layer is sugar on it."""

from __future__ import annotations

from typing import Any, Protocol

from progressor.errors import InvalidRequest
from progressor.handlers.process import Process
from progressor.model import Intent, Task


class Handler(Protocol):
    """The user's code for a namespace, in bytes; Namespace builds one from decorated functions."""

    async def process(self, task: Task, process: Process[Any], /) -> Intent:
        """Answer one task; raise Reject to refuse it, NonRetryable to break the process without retries."""
        ...


def fields_of(task: Task) -> dict[str, object]:
    """Return the fields of a task for a line of the log."""
    return {
        "namespace": task.namespace,
        "process_id": task.process_id,
        "task_id": task.task_id,
        "task_type": task.task_type.value,
    }


def handler_of(task: Task) -> str:
    """Return the name of a task's handler: that of the call, `timeout dunning`, or the type of the task."""
    return task.function if task.name is None or task.task_type.is_timer else task.name


def check_handler(handler: Any, *, state: Any, codec: object) -> Handler | None:
    """Return the raw handler of a namespace, if it has one; InvalidRequest unless it can serve alone."""
    if handler is None:
        return None
    if isinstance(handler, type) or not callable(getattr(handler, "process", None)):
        raise InvalidRequest(
            "handler must be an object with `async def process(task, process)`", field="handler"
        )
    if state is not None:
        raise InvalidRequest("state= needs decorated functions, not handler=", field="state")
    if codec is not None:
        raise InvalidRequest("codec= needs decorated functions, not handler=", field="codec")
    checked_handler: Handler = handler
    return checked_handler


class InvalidCall(InvalidRequest):
    """The request itself is wrong: an unknown call, or bad arguments. Only the typed layer raises it.

    A type of its own, because an InvalidRequest of the user's own code is a failure of that code.
    """


class MissingHandler(Exception):
    """A handler set a timer, or one is due, in a namespace without a timeout handler."""
