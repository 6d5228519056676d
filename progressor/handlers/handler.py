"""What the engine asks of the user's code, in bytes: all else is sugar on it."""

from __future__ import annotations

from typing import Any, Protocol

from progressor.errors import InvalidRequest
from progressor.handlers.process import Process
from progressor.model import Intent, Task


class Handler(Protocol):
    """The user's code for a namespace. Everything else is sugar on this."""

    async def process(self, task: Task, process: Process[Any], /) -> Intent:
        """Answer one task; raise Reject to refuse it."""
        ...


def fields_of(task: Task) -> dict[str, object]:
    """What a line of the log says of a task."""
    return {
        "namespace": task.namespace,
        "process_id": task.process_id,
        "task_id": task.task_id,
        "task_type": task.task_type.value,
    }


def handler_of(task: Task) -> str:
    """The handler of a task, by the name of the call or the kind of the task."""
    return task.name or task.task_type.value


class InvalidCall(InvalidRequest):
    """The typed layer's word that the request itself is wrong: an unknown call, or bad arguments.

    A type of its own: an InvalidRequest that the user's code meets is a failure of that code.
    """
