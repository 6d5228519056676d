"""Requests become tasks here: those of one moment fly together, and each runs here or waits for a worker.

Rule: one coroutine carries a flight from its slots over the commit to the steps that it begins. A caller
who gives up meanwhile stops nothing of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from progressor import metrics
from progressor.client.dispatch.fused import Fuse, FusedBatch, Prepare
from progressor.client.requests import SIMPLE_REPAIR
from progressor.client.results import not_prepared
from progressor.model import TaskType
from progressor.node.node import Node
from progressor.storage import (
    Batcher,
    Claimed,
    Continue,
    Duplicate,
    Finished,
    Fused,
    Kind,
    NotPrepared,
    Postpone,
    Prepared,
    Request,
    batch_by_key,
    batch_by_process,
)
from progressor.worker.pool import Pool
from progressor.worker.pools import Pools

# Results are Prepared; of a fused batcher, Fused or Prepared.
_Way = Batcher[Request, Any]
Accepted = Continue | Postpone | Duplicate | Finished


class Acceptor:
    """The acceptor of a client: it persists requests, and runs those of `pools` here if a slot is free."""

    def __init__(self, node: Node, pools: Pools) -> None:
        self._node = node
        self._pools = pools
        storage, fly, again = node.storage, self._fly, self._fly_again

        def fused(verb: str, fuse: Fuse, prepare: Prepare) -> _Way:
            return node.stops(
                batch_by_process(
                    verb,
                    lambda requests: FusedBatch(pools, self._wake).fly(fuse, prepare, requests),
                    partial(again, prepare),
                )
            )

        self._fused: dict[TaskType, _Way] = {
            TaskType.INIT: fused("fused_init", storage.fused_init, storage.prepare_init),
            TaskType.CALL: fused("fused_call", storage.fused_call, storage.prepare_call),
        }
        init, call, repair = storage.prepare_init, storage.prepare_call, storage.prepare_repair
        calls = node.stops(batch_by_key("prepare_call", partial(fly, call), partial(again, call)))
        self._flights: dict[TaskType, _Way] = {
            TaskType.INIT: node.stops(
                batch_by_process("prepare_init", partial(fly, init), partial(again, init))
            ),
            TaskType.CALL: calls,
            TaskType.NOTIFY: calls,
            TaskType.REPAIR: node.stops(
                batch_by_key("prepare_repair", partial(fly, repair), partial(again, repair))
            ),
        }
        self._simple_repairs: _Way = node.stops(
            batch_by_process("simple_repair", partial(self._fly_without_handler, storage.simple_repair))
        )

    async def accept(self, request: Request) -> Accepted:
        """Persist a request; raise its error if it is refused, or StorageUnavailable if too many wait.

        If its handler can be run behind the lock, it is run and saved in the same transaction. A simple
        repair has no handler: it is done when it is accepted.
        """
        is_simple = request.task_type is TaskType.REPAIR and request.name == SIMPLE_REPAIR
        way = self._simple_repairs if is_simple else self._flights[request.task_type]
        if request.task_type in self._fused and self._pools.computes(request) is not None:
            way = self._fused[request.task_type]
        while True:
            began = time.monotonic()
            sent = way.submit(request)
            try:
                outcome: Fused | Prepared = await sent
            except asyncio.CancelledError:
                # The caller is out of patience, or gone: a request that was not sent must not run later. A
                # notify is sent all the same, for nobody waits for its end in any case.
                if request.task_type is not TaskType.NOTIFY:
                    way.withdraw(request, sent)
                raise
            metrics.took(metrics.REQUEST_PREPARING, began, request.namespace, request.task_type)
            if isinstance(outcome, NotPrepared):
                raise not_prepared(request, outcome)
            if outcome is not None:
                return outcome
            # It could not run behind the lock and nothing of it was written: prepare it.
            way = self._flights[request.task_type]

    async def _fly(self, prepare: Prepare, requests: Sequence[Request]) -> Sequence[Prepared]:
        return await self._carry(prepare, requests, [self._slot_for(request) for request in requests])

    async def _fly_again(self, prepare: Prepare, requests: Sequence[Request]) -> Sequence[Prepared]:
        """Repeat a flight that may have been committed: its tasks run here, even if no slot is free."""
        slots = [self._pools.get(request.namespace) for request in requests]
        for slot in slots:
            if slot is not None:
                slot.take()
        return await self._carry(prepare, requests, slots)

    async def _carry(
        self, prepare: Prepare, requests: Sequence[Request], slots: Sequence[Pool | None]
    ) -> Sequence[Prepared]:
        try:
            outcomes = await prepare(
                [
                    request if slot is None else request._replace(worker_id=slot.worker_id)
                    for request, slot in zip(requests, slots, strict=True)
                ]
            )
        except BaseException:
            for slot in slots:
                if slot is not None:
                    slot.release()
            raise
        for request, slot, outcome in zip(requests, slots, outcomes, strict=True):
            self._go_on(request, slot, outcome)
        return outcomes

    def _slot_for(self, request: Request) -> Pool | None:
        pool = self._pools.get(request.namespace)
        return pool if pool is not None and pool.reserve() else None

    def _go_on(self, request: Request, slot: Pool | None, outcome: Prepared) -> None:
        """Run a task that continues in its slot; of one that waits, wake a pool or worker with a slot."""
        if slot is not None and isinstance(outcome, Continue):
            slot.run(Claimed(outcome.task, outcome.process))
        elif slot is not None:
            slot.release()
        if isinstance(outcome, Postpone):
            self._wake(request.namespace, "calls")

    async def _fly_without_handler(
        self, prepare: Prepare, requests: Sequence[Request]
    ) -> Sequence[Prepared]:
        outcomes = await prepare(requests)
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, Duplicate):
                # A repaired process has its timer back, which may be due.
                self._wake(request.namespace, "timers")
        return outcomes

    def _wake(self, namespace: str, kind: Kind) -> None:
        pool = self._pools.get(namespace)
        if pool is not None:
            pool.ring(kind)
        if pool is None or not pool.claims:
            self._node.wake(namespace, kind)
