"""The requests of a client: start, call, notify and repair, answered now, or accepted and answered later.

Rule: no second implementation. A client over PostgreSQL and one over HTTP differ in their asker alone. What
has a receipt is committed: whoever holds the id and the fingerprint of its task gets the answer, from any
client, or RequestLost.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

from progressor.client.results import Receipt
from progressor.model import Metadata, TaskType

Timeout = float | timedelta | None

SIMPLE_REPAIR = "simple_repair"
"""The name of repairs that run no handler."""


class Asks(Protocol):
    """Has requests accepted, and gets their answers."""

    def make(
        self,
        task_type: TaskType,
        namespace: str,
        process_id: str,
        args: Any,
        idempotency_key: str | None,
        context: Any,
        name: str | None = None,
        metadata: Metadata | None = None,
    ) -> Any:
        """A checked request; InvalidRequest names what is wrong."""
        ...

    async def ask(self, request: Any, timeout: Timeout) -> Any:
        """Have it accepted and wait for its answer: the response, or its error raised."""
        ...

    async def submit(self, request: Any, timeout: Timeout) -> Receipt:
        """Have it accepted, and do not wait for its answer."""
        ...

    async def answer(self, receipt: Receipt, timeout: Timeout) -> Any:
        """The answer of what was submitted."""
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
        """The answer of any task."""
        ...


class Requesting:
    """The part of a client that asks processes."""

    _dispatcher: Asks

    async def start(
        self,
        namespace: str,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        metadata: Metadata | None = None,
        timeout: Timeout = None,
    ) -> Any:
        """Create a process and run its init; the init handler's answer."""
        request = self._dispatcher.make(
            TaskType.INIT, namespace, process_id, args, idempotency_key, context, metadata=metadata
        )
        return await self._dispatcher.ask(request, timeout)

    async def call(
        self,
        namespace: str,
        process_id: str,
        name: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Any:
        """Run a call on a process, after those accepted before it; the handler's answer."""
        request = self._dispatcher.make(
            TaskType.CALL, namespace, process_id, args, idempotency_key, context, name
        )
        return await self._dispatcher.ask(request, timeout)

    async def notify(
        self,
        namespace: str,
        process_id: str,
        name: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> None:
        """Put a call into the mailbox and return once it is accepted."""
        request = self._dispatcher.make(
            TaskType.NOTIFY, namespace, process_id, args, idempotency_key, context, name
        )
        await self._dispatcher.submit(request, timeout)

    async def repair(
        self,
        namespace: str,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Any:
        """Run the repair handler of a broken process; its answer."""
        request = self._dispatcher.make(
            TaskType.REPAIR, namespace, process_id, args, idempotency_key, context
        )
        return await self._dispatcher.ask(request, timeout)

    async def simple_repair(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> None:
        """Put a broken process back to running; its timer comes back, at once if its time is over.

        If its init broke it, the process is back in init, and the init runs anew.
        """
        request = self._dispatcher.make(
            TaskType.REPAIR, namespace, process_id, None, idempotency_key, context, SIMPLE_REPAIR
        )
        await self._dispatcher.submit(request, timeout)

    async def submit_start(
        self,
        namespace: str,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        metadata: Metadata | None = None,
        timeout: Timeout = None,
    ) -> Receipt:
        """As `start`, and return once it is accepted."""
        request = self._dispatcher.make(
            TaskType.INIT, namespace, process_id, args, idempotency_key, context, metadata=metadata
        )
        return await self._dispatcher.submit(request, timeout)

    async def submit_call(
        self,
        namespace: str,
        process_id: str,
        name: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Receipt:
        """As `call`, and return once it is accepted."""
        request = self._dispatcher.make(
            TaskType.CALL, namespace, process_id, args, idempotency_key, context, name
        )
        return await self._dispatcher.submit(request, timeout)

    async def submit_notify(
        self,
        namespace: str,
        process_id: str,
        name: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Receipt:
        """As `notify`, with a receipt."""
        request = self._dispatcher.make(
            TaskType.NOTIFY, namespace, process_id, args, idempotency_key, context, name
        )
        return await self._dispatcher.submit(request, timeout)

    async def submit_repair(
        self,
        namespace: str,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Receipt:
        """As `repair`, and return once it is accepted."""
        request = self._dispatcher.make(
            TaskType.REPAIR, namespace, process_id, args, idempotency_key, context
        )
        return await self._dispatcher.submit(request, timeout)

    async def submit_simple_repair(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Receipt:
        """As `simple_repair`, with a receipt."""
        request = self._dispatcher.make(
            TaskType.REPAIR, namespace, process_id, None, idempotency_key, context, SIMPLE_REPAIR
        )
        return await self._dispatcher.submit(request, timeout)

    async def answer(self, receipt: Receipt, *, timeout: Timeout = None) -> Any:
        """The answer of what was submitted, waited for: what `start`, `call` and `repair` return.

        ReplyTimeout if it takes longer; its task goes on.
        """
        return await self._dispatcher.answer(receipt, timeout)

    async def result(
        self,
        namespace: str,
        process_id: str,
        task_id: int,
        *,
        fingerprint: str | None = None,
        timeout: Timeout = None,
    ) -> Any:
        """The answer of a task of this process, waited for, whoever asked for it.

        TaskNotFound if the process has no such task, ReplyTimeout if it takes longer; the task goes on.
        TaskCancelled if it is a timer that was replaced, unset or fired. With its receipt's `fingerprint`,
        RequestLost if the task of this number is another one. Without it the number is bare: a server that
        was promoted or restored may have given it to another task.
        """
        return await self._dispatcher.result(
            namespace, process_id, task_id, timeout, fingerprint=fingerprint
        )
