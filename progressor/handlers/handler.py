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


class InvalidCall(InvalidRequest):
    """The typed layer's word that the request itself is wrong: an unknown call, or bad arguments.

    A type of its own: an InvalidRequest that the user's code meets is a failure of that code.
    """
