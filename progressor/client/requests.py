"""The requests of a client: start, call, notify and repair, answered now, or accepted and answered later.

Rule: no second implementation. A client over PostgreSQL and one over HTTP differ in their dispatcher alone.
A request with a receipt is committed: any client gets its answer, or RequestLost, by the id and the
fingerprint of its task.
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
    """The dispatcher of a client: it has requests accepted, and waits for their answers."""

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
        """Return a checked request; raise InvalidRequest, which names what is wrong."""
        ...

    async def ask(self, request: Any, timeout: Timeout) -> Any:
        """Have a request accepted, wait for its answer, and return the response or raise its error."""
        ...

    async def submit(self, request: Any, timeout: Timeout) -> Receipt:
        """Have a request accepted, and return its receipt without waiting for its answer."""
        ...

    async def answer(self, receipt: Receipt, timeout: Timeout) -> Any:
        """Wait for the answer of a submitted request, and return it or raise its error."""
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


class Requesting:
    """The methods of a client that send requests to processes.

    `timeout` is a timedelta or seconds; None means `reply_timeout` of a Client, `timeout` of an HttpClient
    (both 60 s by default). Every method raises InvalidRequest for bad input and NamespaceNotFound.

    A method that sends a request raises IdempotencyConflict if its key was used for another request, and
    StorageUnavailable if it is not known to be accepted in time: repeat it with the same key. A method that
    waits for an answer raises ReplyTimeout after `timeout`, or if the client is closed (the task goes on),
    Rejected if the handler refused the request and HandlerFailed if it failed, InvalidRequest if the
    handler takes no such arguments, ProcessNotFound if the process was removed meanwhile, RequestLost if a
    fail-over or a restore lost the request, and CallCycle if a handler would wait for itself.
    """

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
        """Create a process, run its init, and return the init handler's answer.

        Raise ProcessAlreadyExists if the id is taken, Rejected, HandlerFailed (the process is broken then),
        and ReplyTimeout; further errors as of `call`.
        """
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
        """Run a call on a process, after those accepted before it, and return the handler's answer.

        Raise ProcessNotFound, ProcessBroken if the process is broken or breaks before the call runs,
        Rejected, HandlerFailed, ReplyTimeout after `timeout` (the call still runs), CallCycle if a handler
        would wait for itself, IdempotencyConflict, RequestLost, InvalidRequest, NamespaceNotFound, and
        StorageUnavailable.
        """
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
        """Put a call into the mailbox and return once it is accepted.

        `timeout` bounds that alone. Raise ProcessNotFound, ProcessBroken, IdempotencyConflict, and
        StorageUnavailable if the call is not accepted in time.
        """
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
        """Run the repair handler of a broken process, and return its answer.

        Raise ProcessNotFound, ProcessNotBroken, RepairConflict if the process takes no repair just now,
        Rejected, HandlerFailed, and ReplyTimeout; further errors as of `call`.
        """
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

        If its init broke it, the process is back in init, and the init runs anew. `timeout` bounds the
        acceptance alone. Raise ProcessNotFound, ProcessNotBroken, RepairConflict if the process takes no
        repair just now, IdempotencyConflict, and StorageUnavailable if it is not accepted in time.
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
        """Submit what `start` sends, and return its receipt once it is accepted.

        `timeout` bounds that alone. Raise ProcessAlreadyExists if the id is taken, IdempotencyConflict, and
        StorageUnavailable if it is not accepted in time.
        """
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
        """Submit what `call` sends, and return its receipt once it is accepted.

        `timeout` bounds that alone. Raise ProcessNotFound, ProcessBroken, IdempotencyConflict, and
        StorageUnavailable if it is not accepted in time.
        """
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
        """Do as `notify`, with the same errors, and return a receipt."""
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
        """Submit what `repair` sends, and return its receipt once it is accepted.

        `timeout` bounds that alone. Raise ProcessNotFound, ProcessNotBroken, RepairConflict if the process
        takes no repair just now, IdempotencyConflict, and StorageUnavailable if it is not accepted in time.
        """
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
        """Do as `simple_repair`, with the same errors, and return a receipt."""
        request = self._dispatcher.make(
            TaskType.REPAIR, namespace, process_id, None, idempotency_key, context, SIMPLE_REPAIR
        )
        return await self._dispatcher.submit(request, timeout)

    async def answer(self, receipt: Receipt, *, timeout: Timeout = None) -> Any:
        """Wait for the answer of a submitted request, and return what `start`, `call` or `repair` returns.

        Raise ReplyTimeout after `timeout` (the task goes on), RequestLost, and the errors with which
        `start`, `call` or `repair` answers: ProcessNotFound, ProcessBroken, Rejected, HandlerFailed.
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
        """Wait for the answer of any task of this process, and return it or raise its error.

        Raise TaskNotFound if the process has no such task, ReplyTimeout after `timeout` (the task goes on),
        TaskCancelled if it is a timer that was replaced, unset or fired, ProcessNotFound, ProcessBroken,
        Rejected, and HandlerFailed. With its receipt's `fingerprint`, raise RequestLost if the task of this
        number is another one. Without it the number is bare: a server that was promoted or restored may
        have given it to another task.
        """
        return await self._dispatcher.result(
            namespace, process_id, task_id, timeout, fingerprint=fingerprint
        )
