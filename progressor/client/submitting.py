"""Requests whose answer is asked for later: by what came back when they were accepted, or by the task's id.

Rule: what has a receipt is committed. Whoever holds the id of its task gets the answer, from any client.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from progressor.client.asking import Asker, Timeout
from progressor.client.results import Published, response_of
from progressor.errors import (
    NamespaceNotFound,
    ProcessNotFound,
    ReplyTimeout,
    StorageUnavailable,
    TaskNotFound,
)
from progressor.handlers.codec import json_object
from progressor.handlers.waits import waiting_for
from progressor.inputs import check_count, check_namespace, check_text
from progressor.model import LAST_ID, Metadata, TaskType
from progressor.node.node import Node
from progressor.storage import Duplicate, Finished, Request, Standing, TaskRef


class Receipt(NamedTuple):
    """A request that was accepted: its task, and the key under which it was.

    `replayed`: the key had been used before for the same request, whose task this is.
    """

    namespace: str
    process_id: str
    task_id: int
    idempotency_key: str
    replayed: bool
    task: TaskRef
    standing: Standing | None


class Submitting:
    """The part of a client that has requests accepted, and asks for their answers later."""

    _node: Node
    _asker: Asker

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
        request = self._start(namespace, process_id, args, idempotency_key, context, metadata)
        return await self._submit(request, timeout)

    def _start(
        self,
        namespace: str,
        process_id: str,
        args: Any,
        idempotency_key: str | None,
        context: Any,
        metadata: Metadata | None,
    ) -> Request:
        request = self._asker.make(TaskType.INIT, namespace, process_id, args, idempotency_key, context)
        if metadata is None:
            return request
        plain = json_object(metadata, field="metadata")
        return request._replace(process_metadata=self._node.options.check_metadata("metadata", plain))

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
        request = self._asker.make(
            TaskType.CALL, namespace, process_id, args, idempotency_key, context, name
        )
        return await self._submit(request, timeout)

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
        request = self._asker.make(
            TaskType.NOTIFY, namespace, process_id, args, idempotency_key, context, name
        )
        return await self._submit(request, timeout)

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
        request = self._asker.make(TaskType.REPAIR, namespace, process_id, args, idempotency_key, context)
        return await self._submit(request, timeout)

    async def _submit(self, request: Request, timeout: Timeout) -> Receipt:
        accepted = await self._asker.accept(request, timeout)
        standing: Standing | None = None
        match accepted:
            case Finished() | Duplicate():
                task, standing = accepted.task, accepted.answer
            case _:
                found = accepted.task
                task = TaskRef(request.namespace, found.process_no, found.task_id, request.reply_to)
        return Receipt(
            request.namespace,
            request.process_id,
            task.task_id,
            request.idempotency_key,
            isinstance(accepted, Duplicate),
            task,
            standing,
        )

    async def answer(self, receipt: Receipt, *, timeout: Timeout = None) -> Any:
        """The answer of what was submitted, waited for: what `start`, `call` and `repair` return.

        ReplyTimeout if it takes longer; its task goes on.
        """
        return await self._answer(
            receipt.process_id, receipt.task, receipt.standing, timeout, key=receipt.idempotency_key
        )

    async def result(
        self, namespace: str, process_id: str, task_id: int, *, timeout: Timeout = None
    ) -> Any:
        """The answer of a task of this process, waited for, whoever asked for it.

        TaskNotFound if the process has no such task, ReplyTimeout if it takes longer; the task goes on.
        """
        check_namespace(namespace)
        check_text("process_id", process_id)
        check_count("task_id", task_id, least=1, most=LAST_ID)
        await self._node.connected()
        # The task first: if the process is removed meanwhile, its number is gone, or is another life's.
        rows = await self._node.reads.trace(namespace, process_id, after=task_id - 1, limit=1, last=None)
        process = await self._node.reads.process(namespace, process_id)
        if process is None:
            await self._asker.check_namespace(namespace)
            raise ProcessNotFound(namespace, process_id)
        if not rows or rows[0].task_id != task_id:
            raise TaskNotFound(namespace, process_id, task_id=task_id)
        (row,) = rows
        task = TaskRef(namespace, process.process_no, task_id)
        standing = Standing(row.status, row.response, row.error)
        return await self._answer(process_id, task, standing, timeout, key=row.idempotency_key)

    async def _answer(
        self,
        process_id: str,
        task: TaskRef,
        standing: Standing | None,
        timeout: Timeout,
        *,
        key: str | None,
    ) -> Any:
        seconds = self._asker.seconds(timeout)
        if standing is None or (standing.status is not None and not standing.status.is_final):
            try:
                with waiting_for(self._node.place, task.namespace, process_id) as wait:
                    wait.lend(task.process_no)
                    async with asyncio.timeout(seconds):
                        standing = await self._node.replies.wait(task)
            except (TimeoutError, StorageUnavailable) as error:
                raise ReplyTimeout(
                    task.namespace,
                    process_id,
                    idempotency_key=key,
                    task_id=task.task_id,
                    paused=isinstance(error, TimeoutError) and await self._asker.is_paused(task.namespace),
                ) from None
        wire = await self._asker.wire_of(task.namespace)
        return response_of(task.namespace, process_id, standing, wire)

    async def published(self, namespace: str) -> Published:
        """What the workers that serve a namespace have written of it: options and JSON schemas."""
        check_namespace(namespace)
        await self._node.connected()
        row = await self._node.reads.namespace(namespace)
        if row is None:
            raise NamespaceNotFound(namespace)
        return Published(row.name, row.paused, dict(row.options), dict(row.schemas))
