"""The way of a request: made, accepted under its key, and answered.

Rule: a request is repeated under one idempotency key until it is known to be accepted; then its answer is
waited for, by its task, for as long as the caller has patience. What was accepted into this process's
hands runs even if its caller is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, assert_never

from progressor.client.dispatch.acceptor import Accepted, Acceptor
from progressor.client.dispatch.request import request_of, seconds_of
from progressor.client.requests import Timeout
from progressor.client.results import Receipt, response_of
from progressor.errors import (
    NamespaceNotFound,
    ProcessNotFound,
    ProgressorError,
    ReplyTimeout,
    RequestLost,
    StorageUnavailable,
    TaskNotFound,
)
from progressor.handlers.codec import RAW, Wire, require_in_range
from progressor.handlers.namespace import Namespace
from progressor.handlers.waits import waiting_for
from progressor.inputs import check_count, check_namespace as _check_name, check_text, nearest_names
from progressor.model import LAST_ID, ProcessStatus, Snapshot, TaskType
from progressor.node.node import Node
from progressor.storage import Continue, Duplicate, Finished, Postpone, Request, TaskOutcome, TaskRef
from progressor.worker.pools import Pools

_INIT_POLL, _LONGEST_INIT_POLL = 0.005, 0.25
# How long who gave up waiting is kept to be told why.
_WHY_SECONDS = 2.0
# How long the look at a task may take, for who has less time than that.
_LOOK_SECONDS = 2.0


class Dispatcher:
    """The requests of one client; those of namespaces in `pools` run in this process if a slot is free."""

    make = staticmethod(request_of)

    def __init__(self, node: Node, namespaces: Mapping[str, Namespace], wire: Wire, pools: Pools) -> None:
        self._node = node
        self._accepting = Acceptor(node, pools)
        self._known = set(pools)
        self._given = frozenset(namespaces)
        self._wire = wire
        # Of the namespaces that are known: what stands in their rows.
        self._wires = {name: namespace.wire for name, namespace in namespaces.items()}
        self._patience = node.options.patience.total_seconds()

    async def check_namespace(self, namespace: str) -> None:
        """NamespaceNotFound unless a worker ever served it."""
        if namespace not in self._known:
            row = await self._node.storage.namespace(namespace)
            if row is None:
                raise await namespace_not_found(self._node, namespace)
            if namespace not in self._given:
                self._wires[namespace] = RAW if row.options.get("raw") else self._wire
            self._known.add(namespace)

    def forget_namespace(self, namespace: str) -> None:
        """It was retired: who serves it next, and how, is looked up anew."""
        self._known.discard(namespace)

    async def no_reply(self, task: TaskRef, process_id: str, *, key: str | None = None) -> ReplyTimeout:
        """The error of a caller whose time is over, with what a moment can find out; task 0: none."""
        found = None
        # The error is raised in any case.
        with suppress(TimeoutError, ProgressorError):
            async with asyncio.timeout(_WHY_SECONDS):
                found = await self._node.storage.standstill(task)
        return ReplyTimeout(
            task.namespace,
            process_id,
            idempotency_key=key,
            task_id=task.task_id or None,
            **({} if found is None else found._asdict()),
        )

    async def wire_of(self, namespace: str) -> Wire:
        """How values stand in this namespace's rows; NamespaceNotFound if neither we nor they know it."""
        if namespace not in self._wires:
            await self.check_namespace(namespace)
        return self._wires[namespace]

    async def sealed(self, request: Request) -> Request:
        """The request as it is stored: only its namespace says how."""
        await self._node.connected()
        await self.check_namespace(request.namespace)
        wire, options = self._wires[request.namespace], self._node.options
        args, context = request.args, request.context
        if args is not None and wire is not RAW:
            require_in_range(args, field="args")
        if wire.is_coded:
            args = None if args is None else wire.seal(args)
            context = None if context is None else wire.seal(context)
        options.check_value("args", args)
        options.check_value("context", context)
        options.check_metadata("metadata", request.process_metadata)
        reply_to = None if request.task_type is TaskType.NOTIFY else self._node.reply_to
        return request._replace(args=args, context=context, reply_to=reply_to)

    def seconds(self, timeout: Timeout) -> float:
        """How long a caller waits."""
        return seconds_of(timeout, self._node.options.reply_timeout)

    async def ask(self, request: Request, timeout: Timeout) -> Any:
        """Accept the request and wait for its answer: the response, or its error raised.

        CallCycle if a handler would wait for itself.
        """
        seconds = self.seconds(timeout)
        began = asyncio.get_running_loop().time()
        patience = min(seconds, self._patience)
        ref: TaskRef | None = None
        answer: TaskOutcome | None = None
        with waiting_for(self._node.place, request.namespace, request.process_id) as wait:
            try:
                async with asyncio.timeout_at(began + patience) as scope:
                    accepted = await self._accepting.accept(await self.sealed(request))
                    ref, answer = standing_of(accepted)
                    if answer is None:
                        if not isinstance(accepted, Continue):
                            wait.lend(ref.process_no)
                        if patience < seconds:
                            scope.reschedule(began + seconds)
                        answer = await self._node.replies.wait(ref)
            except (TimeoutError, StorageUnavailable) as error:
                if ref is not None:
                    # Out of patience, or closed meanwhile: either way it was accepted and goes on.
                    raise await self._no_reply(ref, request.process_id, error) from None
                if isinstance(error, TimeoutError):
                    raise _not_accepted(request, patience, self._node.storage.outage.cause) from None
                raise
        wire = self._wires[request.namespace]
        return response_of(request.process_id, ref, answer, wire)

    async def _no_reply(self, task: TaskRef, process_id: str, error: Exception) -> ReplyTimeout:
        key = task.idempotency_key
        if isinstance(error, TimeoutError):
            return await self.no_reply(task, process_id, key=key)
        # Closed meanwhile: there is nobody to ask.
        return ReplyTimeout(task.namespace, process_id, idempotency_key=key, task_id=task.task_id)

    async def accept(self, request: Request, timeout: Timeout) -> Accepted:
        """Accept the request, and do not wait for its answer."""
        patience = min(self.seconds(timeout), self._patience)
        try:
            async with asyncio.timeout(patience):
                return await self._accepting.accept(await self.sealed(request))
        except TimeoutError:
            raise _not_accepted(request, patience, self._node.storage.outage.cause) from None

    async def submit(self, request: Request, timeout: Timeout) -> Receipt:
        """Accept the request, and hand out its receipt."""
        accepted = await self.accept(request, timeout)
        task, standing = standing_of(accepted)
        return Receipt(
            request.namespace,
            request.process_id,
            task.task_id,
            request.idempotency_key,
            isinstance(accepted, Duplicate) and not accepted.is_own,
            task,
            standing,
            task.key.fingerprint,
        )

    async def answer(self, receipt: Receipt, timeout: Timeout) -> Any:
        """The answer of what was submitted, or its error raised."""
        if receipt.task is None:
            return await self.result(
                receipt.namespace,
                receipt.process_id,
                receipt.task_id,
                timeout,
                fingerprint=receipt.fingerprint,
                idempotency_key=receipt.idempotency_key,
            )
        until = asyncio.get_running_loop().time() + self.seconds(timeout)
        return await self._answer(receipt.process_id, receipt.task, receipt.standing, until)

    async def result(
        self,
        namespace: str,
        process_id: str,
        task_id: int,
        timeout: Timeout,
        *,
        fingerprint: str | None = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """The answer of a task of this process, or its error raised.

        Also of a life of it that has removed itself, for as long as its answers are kept. A look at what is
        there may take a moment, even if the time is shorter: who does not want to wait wants to look.
        """
        _check_name(namespace)
        check_text("process_id", process_id)
        check_count("task_id", task_id, least=1, most=LAST_ID)
        if fingerprint is not None:
            check_text("fingerprint", fingerprint)
        seconds, began = self.seconds(timeout), asyncio.get_running_loop().time()
        look = max(seconds, _LOOK_SECONDS)
        try:
            async with asyncio.timeout_at(began + look):
                await self._node.connected()
                row = await (await self._node.reads()).task(namespace, process_id, task_id)
                if row is None or fingerprint not in (None, row.ref(namespace).key.fingerprint):
                    await self.found(namespace, process_id)
                    if fingerprint is None:
                        raise TaskNotFound(namespace, process_id, task_id=task_id)
                    # Of the process that is there, or of one before it, which was removed with its tasks.
                    raise RequestLost(
                        namespace,
                        process_id,
                        idempotency_key=idempotency_key,
                        task_id=task_id,
                        is_certain=False,
                    )
                # Now, and not when the answer is there: this too may be a read.
                await self.wire_of(namespace)
        except TimeoutError:
            raise not_answered(look, self._node.storage.outage.cause) from None
        standing = TaskOutcome(row.status, row.response, row.error)
        return await self._answer(process_id, row.ref(namespace), standing, began + seconds)

    async def _answer(
        self, process_id: str, task: TaskRef, standing: TaskOutcome | None, until: float
    ) -> Any:
        if standing is None or (standing.status is not None and not standing.status.is_final):
            try:
                with waiting_for(self._node.place, task.namespace, process_id) as wait:
                    wait.lend(task.process_no)
                    async with asyncio.timeout_at(until):
                        standing = await self._node.replies.wait(task)
            except (TimeoutError, StorageUnavailable) as error:
                raise await self._no_reply(task, process_id, error) from None
        return response_of(process_id, task, standing, await self.wire_of(task.namespace))

    async def initialised(self, snapshot: Snapshot) -> Snapshot:
        """The process once its init, which runs, is over; CallCycle if a handler would wait for itself."""
        namespace, process_id = snapshot.namespace, snapshot.process_id
        with waiting_for(self._node.place, namespace, process_id) as wait:
            wait.lend(snapshot.process_no)
            pause = _INIT_POLL
            while snapshot.status is ProcessStatus.INIT:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_INIT_POLL)
                snapshot = await self.found(namespace, process_id)
        return snapshot

    async def found(self, namespace: str, process_id: str) -> Snapshot:
        """The process as it is now; ProcessNotFound if there is none."""
        snapshot = await (await self._node.reads()).process(namespace, process_id)
        if snapshot is None:
            await self.check_namespace(namespace)
            raise ProcessNotFound(namespace, process_id)
        return snapshot


async def namespace_not_found(node: Node, namespace: str) -> NamespaceNotFound:
    """The error of a namespace that is not known, with those that may have been meant."""
    names: list[str] = []
    # The error is raised in any case.
    with suppress(ProgressorError):
        names = await node.storage.namespace_names()
    return NamespaceNotFound(namespace, nearest_names(namespace, names))


def standing_of(accepted: Accepted) -> tuple[TaskRef, TaskOutcome | None]:
    """The task of an accepted request, and how it stands if it needs not be waited for."""
    match accepted:
        case Finished(answer=answer):
            return accepted.task, answer
        case Duplicate(ref, answer):
            is_over = answer.status is None or answer.status.is_final
            return ref, answer if is_over else None
        case Continue(task, process):
            return TaskRef.of(task, process), None
        case Postpone(ref):
            return ref, None
        case _:
            assert_never(accepted)


def not_answered(seconds: float, cause: str | None) -> StorageUnavailable:
    """The error of who only reads, and whose time was over before anything was seen to go on."""
    return StorageUnavailable(
        f"PostgreSQL did not answer within {seconds:g} s{_for(cause)}: nothing was changed, read again"
    )


def _not_accepted(request: Request, seconds: float, cause: str | None) -> StorageUnavailable:
    return StorageUnavailable(
        f"PostgreSQL did not take the request within {seconds:g} s{_for(cause)}; it may still go through: "
        f"ask again with idempotency_key={request.idempotency_key!r}"
    )


def _for(cause: str | None) -> str:
    """What PostgreSQL says while it is not available, a lack of connections for one."""
    return "" if cause is None else f" ({cause})"
