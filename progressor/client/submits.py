"""Requests that are submitted: accepted now, and answered when their caller asks.

Rule: a request with a receipt is committed: any client gets its answer, or RequestLost, by the id and the
fingerprint of its task.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from progressor.client.asks import Asks, RequestOptions, Timeout
from progressor.client.requests import SIMPLE_REPAIR
from progressor.client.results import Receipt
from progressor.inputs import DRY_RUN
from progressor.model import Metadata, TaskType


class Submitting:
    """The methods of a client that submit requests, and those that wait for their answers.

    Addresses are texts, and arguments anything that JSON can hold. `timeout` is a timedelta or seconds;
    None means `reply_timeout` of a Client, `timeout` of an HttpClient (both 60 s by default). Every method
    raises InvalidRequest for bad input, NamespaceNotFound, and the errors of the method that waits.
    """

    _dispatcher: Asks

    async def submit_start(
        self,
        namespace: str,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        metadata: Metadata | None = None,
        priority: int = 0,
        timeout: Timeout = None,
    ) -> Receipt:
        """Submit what `start` sends, and return its receipt once it is accepted.

        `timeout` bounds that alone. Raise ProcessAlreadyExists if the id is taken, IdempotencyConflict, and
        StorageUnavailable if it is not accepted in time.
        """
        options = RequestOptions(idempotency_key, context, metadata=metadata, priority=priority)
        request = self._dispatcher.make(TaskType.INIT, namespace, process_id, args, options)
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
        expires: timedelta | None = None,
        priority: int = 0,
        timeout: Timeout = None,
    ) -> Receipt:
        """Submit what `call` sends, and return its receipt once it is accepted.

        `timeout` bounds that alone. Raise ProcessNotFound, ProcessBroken, IdempotencyConflict, and
        StorageUnavailable if it is not accepted in time.
        """
        options = RequestOptions(idempotency_key, context, expires=expires, priority=priority)
        request = self._dispatcher.make(TaskType.CALL, namespace, process_id, args, options, name)
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
        expires: timedelta | None = None,
        priority: int = 0,
        timeout: Timeout = None,
    ) -> Receipt:
        """Do as `notify`, with the same errors, and return a receipt."""
        options = RequestOptions(idempotency_key, context, expires=expires, priority=priority)
        request = self._dispatcher.make(TaskType.NOTIFY, namespace, process_id, args, options, name)
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
        options = RequestOptions(idempotency_key, context)
        request = self._dispatcher.make(TaskType.REPAIR, namespace, process_id, args, options)
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
        options = RequestOptions(idempotency_key, context)
        request = self._dispatcher.make(
            TaskType.REPAIR, namespace, process_id, None, options, SIMPLE_REPAIR
        )
        return await self._dispatcher.submit(request, timeout)

    async def submit_dry_run_repair(
        self,
        namespace: str,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Receipt:
        """Submit what `dry_run_repair` sends, with the errors of `submit_repair`, and return its receipt.

        Its answer is the document of a DryRun.
        """
        options = RequestOptions(idempotency_key, context)
        request = self._dispatcher.make(TaskType.REPAIR, namespace, process_id, args, options, DRY_RUN)
        return await self._dispatcher.submit(request, timeout)

    async def submit_redo(
        self,
        namespace: str,
        process_id: str,
        task_id: int,
        *,
        fingerprint: str | None = None,
        timeout: Timeout = None,
    ) -> Receipt:
        """Submit what `redo` sends, and return its receipt once it is accepted.

        Raise as `redo`: TaskNotFound, TaskNotEnded, InvalidRequest, RequestLost, ProcessNotFound,
        ProcessBroken, and StorageUnavailable if it is not accepted in time.
        """
        request = await self._dispatcher.redo_of(namespace, process_id, task_id, timeout, fingerprint)
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
        number is another one, or its process is not known either. Without it the number is bare: a server
        that was promoted or restored may have given it to another task.
        """
        return await self._dispatcher.result(
            namespace, process_id, task_id, timeout, fingerprint=fingerprint
        )
