"""The way of a request: made, accepted under its key, and answered.

Rule: a request is repeated under one idempotency key until it is known to be accepted; then its answer is
waited for, by its task, for as long as the caller has patience. What was accepted into this process's
hands runs even if its caller is gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from progressor import metrics
from progressor.answers import not_prepared
from progressor.backend import Backend
from progressor.codec import Wire, encode
from progressor.config import check_namespace as _check_name
from progressor.config import check_text
from progressor.errors import InvalidRequest, NamespaceNotFound, ReplyTimeout, StorageUnavailable
from progressor.model import TaskType
from progressor.pool import Pool, new_lease
from progressor.storage.items import (
    Answer,
    Claimed,
    Continue,
    Duplicate,
    NotPrepared,
    Postpone,
    Prepared,
    Request,
    TaskRef,
)

Timeout = float | timedelta | None


class Requests:
    """The requests of one client; those of namespaces in `pools` run in this process if a slot is free."""

    def __init__(self, backend: Backend, pools: Mapping[str, Pool]) -> None:
        self._backend = backend
        self._pools = pools
        self._known = set(pools)
        self._raw: set[str] = set()
        self._accepting: set[asyncio.Task[Prepared]] = set()

    async def stop(self) -> None:
        """Give up what is not yet accepted."""
        accepting = list(self._accepting)
        for task in accepting:
            task.cancel()
        await asyncio.gather(*accepting, return_exceptions=True)

    def make(
        self,
        task_type: TaskType,
        namespace: str,
        process_id: str,
        args: Any,
        idempotency_key: str | None,
        context: Any,
        *,
        wire: Wire,
        name: str | None = None,
    ) -> Request:
        """A checked request; InvalidRequest names what is wrong."""
        _check_name(namespace)
        check_text("process_id", process_id)
        metadata = {}
        if name is not None or task_type in (TaskType.CALL, TaskType.NOTIFY):
            metadata["name"] = check_text("name", name)
        if task_type is not TaskType.NOTIFY and self._backend.channel is not None:
            metadata["reply_to"] = self._backend.channel
        if idempotency_key is None:
            idempotency_key = secrets.token_hex(12)
        options = self._backend.options
        plain = encode(args, field="args")
        return Request(
            namespace=namespace,
            process_id=process_id,
            task_type=task_type,
            idempotency_key=check_text("idempotency_key", idempotency_key),
            # Of the plain bytes: a codec that encrypts never writes the same twice.
            request_hash=_request_hash(task_type, name, plain),
            lease=new_lease(),
            args=options.check_value("args", None if plain is None else wire.seal(plain)),
            context=options.check_value("context", wire.encode(context, field="context")),
            metadata=metadata,
        )

    async def check_namespace(self, namespace: str) -> None:
        """NamespaceNotFound unless a worker ever served it."""
        if namespace not in self._known:
            row = await self._backend.reads.namespace(namespace)
            if row is None:
                raise NamespaceNotFound(namespace)
            self._known.add(namespace)
            if row.options.get("raw"):
                self._raw.add(namespace)

    def is_raw(self, namespace: str) -> bool:
        """Whether a raw handler serves it, as far as `check_namespace` has looked."""
        return namespace in self._raw

    def seconds(self, timeout: Timeout) -> float:
        """How long a caller waits."""
        return _seconds(timeout, self._backend.options.reply_timeout)

    async def ask(self, request: Request, timeout: Timeout) -> Answer:
        """Accept the request and wait for its answer."""
        seconds = self.seconds(timeout)
        deadline = asyncio.get_running_loop().time() + seconds
        prepared = await self.accept(request, seconds)
        match prepared:
            case Duplicate(_, answer) if answer.status is None or answer.status.is_final:
                return answer
            case Continue(task, _):
                ref = TaskRef(task.namespace, task.process_id, task.task_id)
            case Postpone(ref) | Duplicate(ref, _):
                pass
        return await self._reply(request, ref, deadline)

    async def _reply(self, request: Request, ref: TaskRef, deadline: float) -> Answer:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._backend.replies.wait(ref)
        except (TimeoutError, StorageUnavailable):
            # Out of patience, or closed meanwhile: either way it was accepted and goes on.
            raise ReplyTimeout(
                request.namespace,
                request.process_id,
                idempotency_key=request.idempotency_key,
                task_id=ref.task_id,
            ) from None

    async def simple_repair(self, request: Request, timeout: Timeout) -> None:
        """Repair without a handler: done when it is accepted."""
        await self.check_namespace(request.namespace)
        seconds = self.seconds(timeout)
        try:
            async with asyncio.timeout(seconds):
                outcome = await self._backend.committed.simple_repair(request)
        except TimeoutError:
            raise _not_accepted(request, seconds) from None
        if isinstance(outcome, NotPrepared):
            raise not_prepared(request, outcome)
        self._backend.ring(request.namespace, "timers")
        if request.namespace not in self._pools:
            self._backend.wake(request.namespace, "timers")

    async def accept(self, request: Request, seconds: float) -> Continue | Postpone | Duplicate:
        """Persist the request. It is carried through even if the caller gives up meanwhile."""
        await self.check_namespace(request.namespace)
        patience = self._backend.options.patience.total_seconds()
        accepting = asyncio.create_task(self._prepare(request))
        self._accepting.add(accepting)
        accepting.add_done_callback(self._accepted)
        try:
            async with asyncio.timeout(min(seconds, patience)):
                prepared = await asyncio.shield(accepting)
        except TimeoutError:
            raise _not_accepted(request, min(seconds, patience)) from None
        if isinstance(prepared, NotPrepared):
            raise not_prepared(request, prepared)
        return prepared

    def _accepted(self, accepting: asyncio.Task[Prepared]) -> None:
        self._accepting.discard(accepting)
        if not accepting.cancelled():
            # The caller sees it too, unless it has gone.
            accepting.exception()

    async def _prepare(self, request: Request) -> Prepared:
        loop = asyncio.get_running_loop()
        began = loop.time()
        pool = self._pools.get(request.namespace)
        if pool is not None and pool.reserve():
            prepared = await self._prepare_in(pool, request)
        else:
            prepared = await self._backend.committed.prepare(request)
        took = (loop.time() - began) * 1000
        kind = request.task_type.value
        metrics.child(metrics.REQUEST_PREPARING, request.namespace, kind).observe(took)
        if isinstance(prepared, Postpone):
            self._backend.ring(request.namespace, "calls")
            if pool is None or pool.free <= 0:
                self._backend.wake(request.namespace, "calls")
        return prepared

    async def _prepare_in(self, pool: Pool, request: Request) -> Prepared:
        runs = False
        try:
            prepared = await self._backend.committed.prepare(replace(request, worker_id=pool.worker_id))
            if isinstance(prepared, Continue):
                runs = True
                pool.run(Claimed(prepared.task, prepared.process))
        finally:
            if not runs:
                pool.release()
        return prepared


def _seconds(timeout: Timeout, default: timedelta) -> float:
    chosen = default if timeout is None else timeout
    seconds = chosen.total_seconds() if isinstance(chosen, timedelta) else chosen
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidRequest("timeout must be a timedelta or a number of seconds above 0", field="timeout")
    try:
        return float(seconds)
    except OverflowError:
        raise InvalidRequest("timeout must be a number that a clock can hold", field="timeout") from None


def _request_hash(task_type: TaskType, name: str | None, args: bytes | None) -> bytes:
    parts = (task_type.value, name or "", "" if args is None else "args")
    head = "\0".join(parts).encode()
    return hashlib.sha256(head + b"\0" + (args or b"")).digest()


def _not_accepted(request: Request, seconds: float) -> StorageUnavailable:
    return StorageUnavailable(
        f"PostgreSQL did not take the request within {seconds:g} s; it may still go through: "
        f"ask again with idempotency_key={request.idempotency_key!r}"
    )
