"""A flight of requests whose handlers run while their transaction is open.

Rule: each request has a slot before it is sent, and its handler has one turn of the loop behind the lock. A
step that has ended is committed as finished, one that goes on as running, in the same transaction. If that
fails, or its answer is lost, the flight prepares its requests, even if nobody waits for them any more. A
task that was committed is found, and its handler goes on. If nothing was committed, the decision of a
handler that has ended is used if its process is as it was; any other handler is run again, once its first
run has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, assert_never

from progressor.errors import InvalidRequest
from progressor.handlers.handler_profile import HandlerProfile
from progressor.model import Decision, Task
from progressor.storage import (
    BatchRefused,
    Claimed,
    Continue,
    Doubtful,
    Duplicate,
    Finished,
    Fused,
    FusedFlight,
    Hints,
    Kind,
    NotPrepared,
    Postpone,
    Prepared,
    Request,
)
from progressor.worker.pool import Pool
from progressor.worker.pools import Pools
from progressor.worker.started_step import MOST_TOGETHER, StartedStep, bar_slow, log_again

OpenFlight = Callable[[Sequence[Request]], AbstractAsyncContextManager[FusedFlight]]
Wake = Callable[[str, Kind], None]


class Prepare(Protocol):
    """An operation that persists requests; the hints leave behind its transaction.

    `tried`: it was tried before, in a batch.
    """

    def __call__(
        self, requests: Sequence[Request], /, *, hints: Hints | None = None, tried: bool = False
    ) -> Awaitable[Sequence[Prepared]]: ...


class FusedBatch:
    """The first requests of a batch: as many as there are slots for, and as may compute together."""

    def __init__(self, pools: Pools, wake: Wake) -> None:
        self._pools = pools
        self._wake = wake
        # Keyed by lease, which a request has before its task exists, and its task afterwards.
        self._begun: dict[int, StartedStep] = {}
        self._began_at = self._decided_at = 0.0
        # Keyed by the places of the requests: the slots that are still to be used or given back.
        self._slots: dict[int, Pool] = {}
        self._requests: dict[int, Request] = {}

    async def fly(
        self, open_flight: OpenFlight, prepare: Prepare, requests: Sequence[Request]
    ) -> Sequence[Fused | Prepared]:
        """Send the requests, and return the outcome of each; None: nothing was done, prepare it.

        BatchRefused if each is to be prepared alone.
        """
        results: list[Fused | Prepared] = [None] * len(requests)
        together = 0.0
        for place, request in enumerate(requests):
            pool = self._pools[request.namespace]
            seconds = pool.fusable_seconds(request)
            if seconds is None:
                continue
            # A handler that computes for longer, as its author allows, flies alone.
            if (not self._slots or together + seconds <= MOST_TOGETHER) and pool.reserve():
                together += seconds
                self._slots[place] = pool
                self._requests[place] = request
        if not self._slots:
            return results
        try:
            await self._carry(open_flight, prepare, results)
        except (BatchRefused, InvalidRequest):
            # Each is prepared alone, and its handler run again, once its first run has ended.
            for begun in self._begun.values():
                await begun.given_up()
                log_again(begun.held.task)
            raise
        finally:
            self._clean_up()
        return results

    async def _carry(
        self, open_flight: OpenFlight, prepare: Prepare, results: list[Fused | Prepared]
    ) -> None:
        places, sent = list(self._requests), list(self._requests.values())
        try:
            async with open_flight(sent) as flight:
                outcomes = await flight.commit(await self._decisions(flight.held))
            for place, outcome in zip(places, outcomes, strict=True):
                self._go_on(place, outcome)
                results[place] = outcome
        except (Doubtful, InvalidRequest):
            # InvalidRequest: PostgreSQL refuses one of the results. Saved alone, it breaks its process.
            bar_slow(self._begun.values(), self._decided_at - self._began_at, self._profile_of)
            for place, accepted in zip(places, await prepare(sent), strict=True):
                self._find(place, accepted)
                results[place] = accepted

    async def _decisions(self, claimed: Sequence[Claimed]) -> Sequence[Decision | None]:
        """Begin the handlers, and return the decision of each that is done after one turn, else None."""
        if not claimed:
            return ()
        tasks = [held.task for held in claimed]
        self._began_at = time.monotonic()
        for held in claimed:
            self._begun[held.task.lease] = self._pools[held.task.namespace].begin_step(held)
        # The handlers run here: the tasks that were begun have their turn of the loop.
        await asyncio.sleep(0)
        self._decided_at = time.monotonic()
        return [self._begun[task.lease].decision_if_done() for task in tasks]

    def _go_on(self, place: int, outcome: Fused) -> None:
        """Go on with a request that is committed: in its slot, or the slot is free."""
        match outcome:
            case Finished():
                begun = self._begun.pop(outcome.step.task.lease)
                self._slots.pop(place).end_fused(begun, outcome, since=self._decided_at)
            case Continue():
                self._slots.pop(place).go_on(self._begun.pop(outcome.task.lease))
            case None:
                pass
            case _:
                assert_never(outcome)

    def _find(self, place: int, outcome: Prepared) -> None:
        """Go on with a request that was prepared after a lost try, whose handler may still run.

        Its task is the one that the try committed, or a new one.
        """
        match outcome:
            case Continue(task, process):
                pool, begun = self._slots.pop(place), self._begun.pop(task.lease, None)
                if begun is None:
                    pool.run(Claimed(task, process))
                elif task.task_id == begun.held.task.task_id:
                    pool.go_on(begun)
                elif begun.fits(held := Claimed(task, process)):
                    pool.go_on(begun._replace(held=held))
                else:
                    log_again(task)
                    pool.restart(held, begun)
            case Postpone(ref):
                begun = self._begun.get(self._requests[place].lease)
                if begun is not None and begun.held.task.task_id != ref.task_id:
                    log_again(begun.held.task)
                self._wake(self._requests[place].namespace, "calls")
            case Duplicate() | NotPrepared():
                pass
            case _:
                assert_never(outcome)

    def _profile_of(self, task: Task) -> HandlerProfile | None:
        return self._pools[task.namespace].namespace.profile_of(task.task_type, task.name)

    def _clean_up(self) -> None:
        """Give back the slots that are left, and give up the steps that were begun in them for nothing."""
        for place, pool in self._slots.items():
            begun = self._begun.get(self._requests[place].lease)
            if begun is None:
                pool.release()
            else:
                pool.give_up(begun)
