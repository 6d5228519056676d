"""A flight of requests whose handlers run while their transaction is open.

Rule: each has a slot before it is sent, and its handler one turn of the loop behind the lock. What came to
its end is committed as finished, what goes on as running, in the same transaction; if that fails, nothing
of it was done, and what its handlers began is given up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from progressor.errors import InvalidRequest
from progressor.model import Decision
from progressor.storage import Claimed, Continue, Finished, Fused, Request, Run
from progressor.worker.pool import Pool
from progressor.worker.pools import Pools
from progressor.worker.slot import Begun

Fuse = Callable[[Sequence[Request], Run], Awaitable[Sequence[Fused]]]

# How long the handlers of a flight may compute together, by what is known of them, in seconds: for so long
# the others who want the same processes, and the connection, wait.
MOST_TOGETHER = 0.002


async def fly_fused(pools: Pools, fuse: Fuse, requests: Sequence[Request]) -> Sequence[Fused]:
    """What became of each; None: nothing, it is to be prepared the ordinary way."""
    slots = _slots(pools, requests)
    begun: dict[int, Begun] = {}
    decided_at = 0.0

    async def run(claimed: Sequence[Claimed]) -> Sequence[Decision | None]:
        for held in claimed:
            begun[held.task.task_id] = pools[held.task.namespace].begin(held)
        # Whoever waits for nothing is done after its first turn.
        await asyncio.sleep(0)
        nonlocal decided_at
        decided_at = time.monotonic()
        return [begun[held.task.task_id].decided() for held in claimed]

    results: list[Fused] = [None] * len(requests)
    try:
        for place, outcome in await _fused(fuse, requests, slots, run):
            results[place] = outcome
            match outcome:
                case Finished():
                    begun.pop(outcome.step.task.task_id)
                    slots.pop(place).end(outcome, since=decided_at)
                case Continue():
                    slots.pop(place).go_on(begun.pop(outcome.task.task_id))
                case None:
                    pass
                case _:
                    assert_never(outcome)
    finally:
        for pool in slots.values():
            pool.release()
        for each in begun.values():
            each.give_up()
    return results


def _slots(pools: Pools, requests: Sequence[Request]) -> dict[int, Pool]:
    """The slots of the first requests: as many as there are, and may compute together."""
    slots: dict[int, Pool] = {}
    together = 0.0
    for place, request in enumerate(requests):
        pool = pools[request.namespace]
        seconds = pool.computes(request.task_type, request.name)
        if seconds is None or together + seconds > MOST_TOGETHER or not pool.reserve():
            continue
        together += seconds
        slots[place] = pool
    return slots


async def _fused(
    fuse: Fuse, requests: Sequence[Request], slots: dict[int, Pool], run: Run
) -> list[tuple[int, Fused]]:
    if not slots:
        return []
    ours = [requests[place]._replace(worker_id=pool.worker_id) for place, pool in slots.items()]
    try:
        outcomes = await fuse(ours, run)
    except InvalidRequest:
        # PostgreSQL will never take one of the results. Saved by itself, that one breaks its process.
        return []
    return list(zip(slots, outcomes, strict=True))
