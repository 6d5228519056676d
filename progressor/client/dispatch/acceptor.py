"""Requests become tasks here: those of one moment fly together, and each runs here or waits for a worker.

Rule: one coroutine carries a flight from its slots over the commit to the steps that it begins. A caller
who gives up meanwhile stops nothing of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import assert_never

from progressor import metrics
from progressor.client.dispatch.fused import FusedBatch, OpenFlight, Prepare
from progressor.client.requests import SIMPLE_REPAIR
from progressor.client.results import not_prepared
from progressor.model import TaskType
from progressor.node.node import Node
from progressor.storage import (
    Batcher,
    Claimed,
    Conflict,
    Continue,
    Duplicate,
    Finished,
    Fused,
    Hints,
    Kind,
    NotPrepared,
    Postpone,
    Prepared,
    Request,
    TaskOutcome,
    TaskRef,
    batch_requests,
    by_key,
    by_process,
)
from progressor.worker.pool import Pool
from progressor.worker.pools import Pools

Accepted = Continue | Postpone | Duplicate | Finished


class Flights:
    """The flights of one verb, which prepare requests; each continues in a slot of its pool, or waits."""

    def __init__(
        self, verb: str, prepare: Prepare, node: Node, pools: Pools, *, by: Conflict = by_key
    ) -> None:
        self._node = node
        self._pools = pools
        self._prepare = prepare
        self.batch: Batcher[Request, Fused | Prepared] = node.stops(
            batch_requests(verb, self.fly, by=by, run_again=self.fly_again)
        )

    async def fly(self, requests: Sequence[Request]) -> Sequence[Fused | Prepared]:
        """Prepare requests; those of a pool with a free slot continue there."""
        slots = [self._slot_for(request) for request in requests]
        with self._pools.requests.entry():
            return await self._carry(requests, slots)

    async def fly_again(self, requests: Sequence[Request]) -> Sequence[Fused | Prepared]:
        """Repeat a flight that may have been committed: its tasks run here, even if no slot is free.

        It may wait for long for the lock of a process: meanwhile others use its slots.
        """
        slots = [self._slot_again(request) for request in requests]
        with ExitStack() as waiting, self._pools.requests.entry():
            for slot in slots:
                if slot is not None:
                    slot.take()
                    waiting.enter_context(slot.lending_slot())
            return await self._carry(requests, slots, tried=True)

    def _slot_again(self, request: Request) -> Pool | None:
        pool = self._pools.get(request.namespace)
        # By a rate no request continues here: each step is claimed.
        return None if pool is None or pool.namespace.rates.all is not None else pool

    def _slot_for(self, request: Request) -> Pool | None:
        pool = self._pools.get(request.namespace)
        return pool if pool is not None and pool.reserve() else None

    async def _carry(
        self, requests: Sequence[Request], slots: Sequence[Pool | None], *, tried: bool = False
    ) -> Sequence[Prepared]:
        # Those that find no slot here wait for another worker.
        left = [request for request, slot in zip(requests, slots, strict=True) if slot is None]
        hints, woken = self._wakes_behind(left, "calls")
        try:
            outcomes = await self._prepare(
                [
                    _without_worker(request) if slot is None else request
                    for request, slot in zip(requests, slots, strict=True)
                ],
                hints=hints,
                tried=tried,
            )
        except BaseException:
            for slot in slots:
                if slot is not None:
                    slot.release()
            raise
        for request, slot, outcome in zip(requests, slots, outcomes, strict=True):
            if slot is not None and isinstance(outcome, Continue):
                slot.run(Claimed(outcome.task, outcome.process))
            elif slot is not None:
                slot.release()
            if isinstance(outcome, Postpone):
                self._wake(request.namespace, "calls", woken)
        return outcomes

    def _wakes_behind(
        self, requests: Sequence[Request], kind: Kind
    ) -> tuple[Hints | None, Collection[str]]:
        """Return the hints for namespaces whose calls and timers no pool here takes, and whom they wake."""
        names = {request.namespace for request in requests}
        return self._node.wakes_behind([name for name in names if not self._claims_here(name)], kind)

    def _claims_here(self, namespace: str) -> bool:
        """Return whether a pool of this OS process takes what waits."""
        pool = self._pools.get(namespace)
        return pool is not None and pool.may_claim

    def _wake(self, namespace: str, kind: Kind, woken: Collection[str] = ()) -> None:
        """Wake a pool or a worker that has a slot for what waits.

        `woken` are the namespaces of which a worker was hinted with the transaction.
        """
        pool = self._pools.get(namespace)
        if pool is not None:
            pool.ring(kind)
        if namespace not in woken and not self._claims_here(namespace):
            self._node.wake(namespace, kind)


class FusedFlights(Flights):
    """The flights of one verb that run and save requests in the transaction that accepts them."""

    def __init__(
        self, verb: str, open_flight: OpenFlight, prepare: Prepare, node: Node, pools: Pools
    ) -> None:
        self._open_flight = open_flight
        super().__init__(verb, prepare, node, pools, by=by_process)

    async def fly(self, requests: Sequence[Request]) -> Sequence[Fused | Prepared]:
        """Run requests behind their locks; return None for one that is to be prepared."""
        with self._pools.requests.entry():
            return await FusedBatch(self._pools, self._wake).fly(self._open_flight, self._prepare, requests)


class SimpleRepairs(Flights):
    """The flights of simple repairs, which have no handler: they are done when they are accepted."""

    async def fly(self, requests: Sequence[Request], *, tried: bool = False) -> Sequence[Prepared]:
        """Repair processes."""
        # A repaired process has its timer back, which may be due.
        hints, woken = self._wakes_behind(requests, "timers")
        outcomes = await self._prepare(
            [_without_worker(request) for request in requests], hints=hints, tried=tried
        )
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, Duplicate):
                self._wake(request.namespace, "timers", woken)
        return outcomes

    async def fly_again(self, requests: Sequence[Request]) -> Sequence[Prepared]:
        return await self.fly(requests, tried=True)


class Redos(Flights):
    """The flights of redone requests: their values stay in PostgreSQL, so a worker claims them."""

    async def fly(self, requests: Sequence[Request]) -> Sequence[Prepared]:
        """Prepare requests without slots."""
        return await self._carry(requests, [None] * len(requests))

    async def fly_again(self, requests: Sequence[Request]) -> Sequence[Prepared]:
        return await self._carry(requests, [None] * len(requests), tried=True)


class Acceptor:
    """The acceptor of a client: it persists requests, and runs those of `pools` here if a slot is free."""

    def __init__(self, node: Node, pools: Pools) -> None:
        self._pools = pools
        storage = node.storage
        calls = Flights("prepare_call", storage.prepare_call, node, pools)
        self._prepared = {
            TaskType.INIT: Flights("prepare_init", storage.prepare_init, node, pools, by=by_process),
            TaskType.CALL: calls,
            TaskType.NOTIFY: calls,
            TaskType.REPAIR: Flights("prepare_repair", storage.prepare_repair, node, pools),
        }
        self._fused = {
            TaskType.INIT: FusedFlights(
                "fused_init", storage.fused_init, storage.prepare_init, node, pools
            ),
            TaskType.CALL: FusedFlights(
                "fused_call", storage.fused_call, storage.prepare_call, node, pools
            ),
        }
        self._simple_repairs = SimpleRepairs(
            "simple_repair", storage.simple_repair, node, pools, by=by_process
        )
        self._redos = Redos("redo", storage.redo, node, pools)

    async def accept(self, request: Request) -> Accepted:
        """Persist a request; raise its error if it is refused, or StorageUnavailable if too many wait.

        If its handler can be run behind the lock, it is run and saved in the same transaction. A simple
        repair has no handler: it is done when it is accepted.
        """
        way = self._way(request)
        while True:
            began = time.monotonic()
            sent = way.batch.submit(request)
            try:
                outcome = await sent
            except asyncio.CancelledError:
                # The caller is out of patience, or gone: a request that was not sent must not run later. A
                # notify is sent all the same, for nobody waits for its end in any case.
                if request.task_type is not TaskType.NOTIFY:
                    way.batch.withdraw(request, sent)
                raise
            metrics.took(metrics.REQUEST_PREPARING, began, request.namespace, request.task_type)
            if isinstance(outcome, NotPrepared):
                raise not_prepared(request, outcome)
            if outcome is not None:
                return outcome
            # It could not run behind the lock and nothing of it was written: prepare it.
            way = self._prepared[request.task_type]

    def _way(self, request: Request) -> Flights:
        if request.redoes is not None:
            return self._redos
        if request.task_type is TaskType.REPAIR and request.name == SIMPLE_REPAIR:
            return self._simple_repairs
        fused = self._fused.get(request.task_type)
        pool = self._pools.get(request.namespace)
        if (
            request.act is not None
            or fused is None
            or pool is None
            or not pool.may_claim
            or pool.fusable_seconds(request) is None
        ):
            return self._prepared[request.task_type]
        return fused


def _without_worker(request: Request) -> Request:
    """Return a request that the worker of this OS process does not take."""
    return request if request.worker_id is None else request._replace(worker_id=None)


def standing_of(accepted: Accepted) -> tuple[TaskRef, TaskOutcome | None]:
    """Return the task of an accepted request; and how it stands, or None if its answer is to come."""
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
