"""The way of a request: made, accepted under its key, and answered.

Rule: a request is repeated under one idempotency key until it is known to be accepted; then the dispatcher
waits for the answer of its task, for as long as the caller has patience. A request that this OS process
runs goes on even if its caller is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import nullcontext, suppress
from functools import lru_cache, partial
from typing import Any

from progressor.client.asks import Timeout
from progressor.client.dispatch.acceptor import Accepted, Acceptor, standing_of
from progressor.client.dispatch.acts import act_of_request
from progressor.client.dispatch.dry_runs import require_dry_runs
from progressor.client.dispatch.request import redo_request, request_of
from progressor.client.dispatch.traced import TracedRequest, traced, traced_until_accepted
from progressor.client.dispatch.unanswered import not_accepted, not_answered
from progressor.client.results import Read, Receipt, response_of
from progressor.errors import (
    NamespaceNotFound,
    ProcessNotFound,
    ProgressorError,
    ReplyTimeout,
    RequestLost,
    StorageUnavailable,
    TaskNotFound,
    process_not_found,
)
from progressor.handlers.codec import RAW, Wire, require_in_range
from progressor.handlers.dry_run import guarded
from progressor.handlers.namespace import Namespace
from progressor.handlers.running.deadlines import Deadline, Deadlines
from progressor.handlers.running.waits import waiting_for
from progressor.inputs import (
    DRY_RUN,
    LAST_ID,
    check_count,
    check_namespace as _check_name,
    check_seconds,
    check_text,
    given_key,
    nearest_names,
)
from progressor.model import ProcessStatus, Snapshot, TaskType
from progressor.node.node import Node, running_loop
from progressor.storage import (
    AnswerRow,
    Continue,
    Duplicate,
    Request,
    TaskOutcome,
    TaskRef,
)
from progressor.worker.pools import Pools

_INIT_POLL, _LONGEST_INIT_POLL = 0.005, 0.25
# Limits of callers whose deadlines are kept; callers of a rarer limit get deadlines of their own.
_MOST_LIMITS = 64
# Seconds that a caller whose time is over is kept longer, to find out why there is no answer.
_WHY_SECONDS = 2.0
# Seconds that `result` may take for the look at a task, even if the caller's timeout is shorter.
_LOOK_SECONDS = 2.0


class Dispatcher:
    """The requests of one client; those of namespaces in `pools` run in this process if a slot is free."""

    def __init__(self, node: Node, namespaces: Mapping[str, Namespace], wire: Wire, pools: Pools) -> None:
        self._node = node
        worker_id = node.node_id if pools else None
        self.make = partial(request_of, reply_to=node.reply_to, worker_id=worker_id)
        self._accepting = Acceptor(node, pools)
        self._known = set(pools)
        self._given = frozenset(namespaces)
        self.wire = wire
        # The wires of known namespaces: how values stand in their rows.
        self._wires = {name: namespace.wire for name, namespace in namespaces.items()}
        self._patience = node.options.patience.total_seconds()
        self._reply_timeout = node.options.reply_timeout.total_seconds()
        # By seconds and event loop.
        self._deadlines = lru_cache(maxsize=_MOST_LIMITS)(partial(Deadlines, keeps_timer=False))

    async def check_namespace(self, namespace: str) -> None:
        """Raise NamespaceNotFound if a namespace is not known in the database."""
        if namespace not in self._known:
            row = await self._node.storage.namespace(namespace)
            if row is None:
                raise await namespace_not_found(self._node, namespace)
            if namespace not in self._given:
                self._wires[namespace] = RAW if row.options.get("raw") else self.wire
            self._known.add(namespace)

    def forget_namespace(self, namespace: str) -> None:
        """Forget a namespace that was retired: the next request looks it up anew."""
        self._known.discard(namespace)

    async def no_reply(self, task: TaskRef, process_id: str, *, key: str | None = None) -> ReplyTimeout:
        """Return the error of a caller whose time is over, with why, if two seconds suffice to find out.

        Task 0 stands for a request without one.
        """
        found = None
        # The caller gets its error in any case.
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
        """Return how values stand in a namespace's rows; raise NamespaceNotFound if it is not known."""
        if namespace not in self._wires:
            await self.check_namespace(namespace)
        return self._wires[namespace]

    async def sealed(self, request: Request) -> Request:
        """Return the request as it is stored, sealed with the codec of its namespace.

        Raise NamespaceNotFound, and InvalidRequest if a value is too large.
        """
        await self._node.connected()
        await self.check_namespace(request.namespace)
        wire, options = self._wires[request.namespace], self._node.options
        args, context = request.args, request.context
        if args is not None and wire is not RAW:
            require_in_range(args, field="args")
        if request.task_type is TaskType.REPAIR and request.name == DRY_RUN:
            await require_dry_runs(self._node, request)
            args = guarded(args)
        if wire.is_coded:
            args = None if args is None else wire.seal(args, "args", request)
            context = None if context is None else wire.seal(context, "context", request)
        options.check_value("args", args)
        options.check_value("context", context)
        options.check_metadata("metadata", request.process_metadata)
        act = act_of_request(self._node, request)
        if act is None and args is request.args and context is request.context:
            return request
        return request._replace(args=args, context=context, act=act)

    def seconds(self, timeout: Timeout) -> float:
        """Return how many seconds a caller waits; raise InvalidRequest if `timeout` is no time."""
        return self._reply_timeout if timeout is None else check_seconds("timeout", timeout)

    def ask(self, request: Request, timeout: Timeout, read: Read | None = None) -> Coroutine[Any, Any, Any]:
        """Have the request accepted, wait for its answer, and return the response or raise its error.

        Raise CallCycle if a handler would wait for itself, ReplyTimeout if it is accepted and not answered
        in time, and StorageUnavailable if it is not known to be accepted.
        """
        seconds = self.seconds(timeout)
        sent = traced(request, seconds)
        if sent is None:
            return self._ask(request, seconds, read)
        return self._ask_traced(sent, seconds, read)

    async def _ask_traced(self, sent: TracedRequest, seconds: float, read: Read | None) -> Any:
        with sent:
            return await self._ask(sent.request, seconds, read, sent)

    async def _ask(
        self, request: Request, seconds: float, read: Read | None, sent: TracedRequest | None = None
    ) -> Any:
        patience = min(seconds, self._patience)
        loop = running_loop()
        ref: TaskRef | None = None
        answer: TaskOutcome | None = None
        with waiting_for(self._node.place, request.namespace, request.process_id) as wait:
            try:
                with Deadline(self._deadlines(seconds, loop)):
                    with Deadline(self._deadlines(patience, loop)):
                        accepted = await self._accepting.accept(await self.sealed(request))
                    ref, answer = standing_of(accepted)
                    if sent is not None:
                        sent.accepted(ref)
                    if answer is None:
                        if not isinstance(accepted, Continue):
                            wait.lend(ref.process_no)
                        answer = await self._node.replies.wait(ref)
            except TaskNotFound:
                # A redo of an earlier life's task, whose name may have no process now.
                await self.found(request.namespace, request.process_id)
                raise
            except (TimeoutError, StorageUnavailable) as error:
                if ref is not None:
                    # The time is over, or the client was closed: the request was accepted and goes on.
                    raise await self._no_reply(ref, request.process_id, error) from None
                if isinstance(error, TimeoutError):
                    raise not_accepted(request, patience, self._node.storage.outage.cause) from None
                raise
        wire = self._wires[request.namespace]
        return response_of(request.process_id, ref, answer, wire, read)

    async def _no_reply(self, task: TaskRef, process_id: str, error: Exception) -> Exception:
        key = given_key(task.idempotency_key)
        if isinstance(error, TimeoutError):
            return await self.no_reply(task, process_id, key=key)
        if not self._node.is_closed:
            return error  # its answer is there and cannot be read
        # The client was closed meanwhile: it cannot ask why.
        return ReplyTimeout(task.namespace, process_id, idempotency_key=key, task_id=task.task_id)

    async def _accept(self, request: Request, timeout: Timeout) -> Accepted:
        patience = min(self.seconds(timeout), self._patience)
        try:
            with Deadline(self._deadlines(patience, running_loop())):
                return await self._accepting.accept(await self.sealed(request))
        except TaskNotFound:
            await self.found(request.namespace, request.process_id)
            raise
        except TimeoutError:
            raise not_accepted(request, patience, self._node.storage.outage.cause) from None

    async def submit(self, request: Request, timeout: Timeout) -> Receipt:
        """Have the request accepted, and return its receipt.

        Raise StorageUnavailable if it is not known to be accepted in time.
        """
        sent = traced_until_accepted(request)
        with sent or nullcontext():
            accepted = await self._accept(request if sent is None else sent.request, timeout)
            task, standing = standing_of(accepted)
            if sent is not None:
                sent.accepted(task)
        return Receipt(
            request.namespace,
            request.process_id,
            task.task_id,
            request.idempotency_key,
            isinstance(accepted, Duplicate) and not accepted.is_own,
            task,
            standing,
            task.key.fingerprint,
            request.task_type,
        )

    async def answer(self, receipt: Receipt, timeout: Timeout) -> Any:
        """Wait for the answer of a submitted request, and return it or raise its error."""
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
        """Wait for the answer of a task of this process, and return it or raise its error.

        The task may be one of a life that has removed itself, for as long as its answers are kept. The look
        at the task may take two seconds, even if `timeout` is shorter: a caller who does not want to wait
        wants to look.
        """
        seconds, began = self.seconds(timeout), asyncio.get_running_loop().time()
        row = await self._task(namespace, process_id, task_id, seconds, fingerprint, idempotency_key)
        standing = TaskOutcome(row.status, row.response, row.error)
        return await self._answer(process_id, row.ref(namespace), standing, began + seconds)

    async def _task(
        self,
        namespace: str,
        process_id: str,
        task_id: int,
        seconds: float,
        fingerprint: str | None,
        idempotency_key: str | None = None,
    ) -> AnswerRow:
        """Return a task of this process or of an earlier life; raise TaskNotFound or RequestLost."""
        _check_name(namespace)
        check_text("process_id", process_id)
        check_count("task_id", task_id, least=1, most=LAST_ID)
        if fingerprint is not None:
            check_text("fingerprint", fingerprint)
        look = max(seconds, _LOOK_SECONDS)
        try:
            async with asyncio.timeout(look):
                await self._node.connected()
                row = await (await self._node.reads()).task(namespace, process_id, task_id)
                if row is None or fingerprint not in (None, row.ref(namespace).key.fingerprint):
                    is_deleted = task_id <= await self._swept_until(namespace, process_id, fingerprint)
                    if fingerprint is None or is_deleted:
                        raise TaskNotFound(namespace, process_id, task_id=task_id, is_deleted=is_deleted)
                    # The task was lost, or it was one of an earlier life that was removed with its tasks.
                    raise RequestLost(
                        namespace,
                        process_id,
                        idempotency_key=idempotency_key,
                        task_id=task_id,
                        is_certain=False,
                    )
                # This may be a read too: it belongs to the look, not to the end of the wait.
                await self.wire_of(namespace)
        except TimeoutError:
            raise not_answered(look, self._node.storage.outage.cause) from None
        return row

    async def _swept_until(self, namespace: str, process_id: str, fingerprint: str | None) -> int:
        """Return up to which task a process may have lost tasks to its retention.

        A fingerprint shows that there was a task: 0 of a process that may be lost with it. Raise
        NamespaceNotFound or ProcessNotFound without a fingerprint, and if the process is known as removed.
        """
        try:
            return (await self.found(namespace, process_id)).swept_until
        except (NamespaceNotFound, ProcessNotFound):
            if fingerprint is None or await (await self._node.reads()).was_removed(namespace, process_id):
                raise
            return 0

    async def redo_of(
        self, namespace: str, process_id: str, task_id: int, timeout: Timeout, fingerprint: str | None
    ) -> Request:
        """Return the request that runs an ended one again; raise its error if there is no such task."""
        row = await self._task(namespace, process_id, task_id, self.seconds(timeout), fingerprint)
        return redo_request(namespace, process_id, row, reply_to=self._node.reply_to)

    async def is_dry_run(
        self, namespace: str, process_id: str, task_id: int, fingerprint: str | None
    ) -> bool:
        """Return whether a task is a dry run, whose answer has the state; raise if there is none."""
        row = await self._task(namespace, process_id, task_id, _LOOK_SECONDS, fingerprint)
        return row.task_type is TaskType.REPAIR and row.name == DRY_RUN

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
        """Wait until the init of a process is over, and return the process.

        Raise CallCycle if a handler would wait for itself, and ProcessNotFound if the process goes.
        """
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
        """Return a process as it is now; raise ProcessNotFound if there is none."""
        snapshot = await (await self._node.reads()).process(namespace, process_id)
        if snapshot is None:
            await self.check_namespace(namespace)
            raise process_not_found(namespace, process_id)
        return snapshot


async def namespace_not_found(node: Node, namespace: str) -> NamespaceNotFound:
    """Return the error of a namespace that is not known, with those that may have been meant."""
    names: list[str] = []
    # The caller gets its error in any case.
    with suppress(ProgressorError):
        names = await node.storage.namespace_names()
    return NamespaceNotFound(namespace, nearest_names(namespace, names))
