"""The seam between the methods of a client and its dispatcher: over PostgreSQL, or over HTTP.

Rule: a method makes a request, and has it carried. It does not know how.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from progressor.client.results import Read, Receipt
from progressor.model import Metadata, TaskType

Timeout = float | timedelta | None


class RequestOptions(NamedTuple):
    """The options of a request, as its caller states them."""

    idempotency_key: str | None = None
    context: Any = None
    metadata: Metadata | None = None
    expires: timedelta | None = None
    priority: int = 0


class Asks(Protocol):
    """The dispatcher of a client: it has requests accepted, and waits for their answers."""

    def make(
        self,
        task_type: TaskType,
        namespace: str,
        process_id: str,
        args: Any,
        options: RequestOptions,
        name: str | None = None,
    ) -> Any:
        """Return a checked request; raise InvalidRequest, which names what is wrong."""
        ...

    async def ask(self, request: Any, timeout: Timeout, read: Read | None = None) -> Any:
        """Have a request accepted, wait for its answer, and return it as `read` reads it, or raise."""
        ...

    async def submit(self, request: Any, timeout: Timeout) -> Receipt:
        """Have a request accepted, and return its receipt without waiting for its answer."""
        ...

    async def answer(self, receipt: Receipt, timeout: Timeout) -> Any:
        """Wait for the answer of a submitted request, and return it or raise its error."""
        ...

    async def redo_of(
        self, namespace: str, process_id: str, task_id: int, timeout: Timeout, fingerprint: str | None
    ) -> Any:
        """Return the request that runs an ended one again; its `task_type` is None if it is not known."""
        ...

    async def result(
        self,
        namespace: str,
        process_id: str,
        task_id: int,
        timeout: Timeout,
        *,
        fingerprint: str | None = None,
    ) -> Any:
        """Wait for the answer of any task, and return it or raise its error."""
        ...
