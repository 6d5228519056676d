"""A flight of requests whose handlers run while their transaction is open.

Rule: each has a slot before it is sent, and its handler one turn of the loop behind the lock. What came to
its end is committed as finished, what goes on as running, in the same transaction. If that fails, what the
handlers began is given up, and the flight prepares its requests: that finds out what was committed, and
runs it, whether or not somebody still waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from progressor.errors import InvalidRequest
from progressor.model import Decision
from progressor.storage import Claimed, Continue, Doubtful, Finished, Fused, Prepared, Request, Run
from progressor.worker.pool import Pool
from progressor.worker.pools import Pools
from progressor.worker.slot import Begun

Fuse = Callable[[Sequence[Request], Run], Awaitable[Sequence[Fused]]]
Carry = Callable[[Sequence[Request], Sequence[Pool]], Awaitable[Sequence[Prepared]]]

# How long the handlers of a flight may compute together, by what is known of them, in seconds: for so long
# the others who want the same processes, and the connection, wait.
MOST_TOGETHER = 0.002


async def fly_fused(
    pools: Pools, fuse: Fuse, carry: Carry, requests: Sequence[Request]
) -> Sequence[Fused | Prepared]:
    """What became of each; None: nothing, it is to be prepared. `carry` does so for those with a slot."""
    flight = _Flight(pools, requests)
    results: list[Fused | Prepared] = [None] * len(requests)
    if not flight.slots:
        return results
    try:
        found = await fuse(list(flight.requests.values()), flight.run)
        for place, outcome in zip(flight.requests, found, strict=True):
            flight.go_on(place, outcome)
            results[place] = outcome
    except InvalidRequest:
        # PostgreSQL will never take one of the results. Saved by itself, that one breaks its process.
        return results
    except Doubtful:
        asked, slots = list(flight.requests.values()), flight.hand_over()
        for place, carried in zip(flight.requests, await carry(asked, slots), strict=True):
            results[place] = carried
    finally:
        flight.end()
    return results


class _Flight:
    """The first requests of a batch: as many as there are slots, and may compute together."""

    def __init__(self, pools: Pools, requests: Sequence[Request]) -> None:
        self._pools = pools
        self._begun: dict[int, Begun] = {}
        self._decided_at = 0.0
        self.slots: dict[int, Pool] = {}
        """Of those that are still under way, by the places of their requests."""
        together = 0.0
        for place, request in enumerate(requests):
            pool = pools[request.namespace]
            seconds = pool.computes(request.task_type, request.name)
            if seconds is not None and together + seconds <= MOST_TOGETHER and pool.reserve():
                together += seconds
                self.slots[place] = pool
        self.requests = {
            place: requests[place]._replace(worker_id=pool.worker_id) for place, pool in self.slots.items()
        }

    async def run(self, claimed: Sequence[Claimed]) -> Sequence[Decision | None]:
        """Begin the handlers: what becomes of each that is done after its first turn."""
        tasks = [held.task for held in claimed]
        for held in claimed:
            self._begun[held.task.task_id] = self._pools[held.task.namespace].begin(held)
        await asyncio.sleep(0)
        self._decided_at = time.monotonic()
        return [self._begun[task.task_id].decided() for task in tasks]

    def go_on(self, place: int, outcome: Fused) -> None:
        """It is committed: it goes on in its slot, or the slot is free."""
        match outcome:
            case Finished():
                del self._begun[outcome.step.task.task_id]
                self.slots.pop(place).end(outcome, since=self._decided_at)
            case Continue():
                self.slots.pop(place).go_on(self._begun.pop(outcome.task.task_id))
            case None:
                pass
            case _:
                assert_never(outcome)

    def hand_over(self) -> list[Pool]:
        """Give up what the handlers began, and leave the slots to whoever prepares the requests."""
        for begun in self._begun.values():
            begun.give_up()
        self._begun.clear()
        slots, self.slots = list(self.slots.values()), {}
        return slots

    def end(self) -> None:
        """Give back the slots that are left, and give up what was begun for nothing."""
        for pool in self.hand_over():
            pool.release()
