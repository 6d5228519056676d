"""names: call, chain, start and drain among many stored processes, with long and with short names.

So many acts are measured, not so many seconds: what an act writes depends on the acts before it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.workloads.rows import add_stored, unattended
from progressor.bench import flows
from progressor.bench.chain import chain_of, check_counts
from progressor.bench.databases import runner
from progressor.bench.flows import Names
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window, until
from progressor.bench.requests import starting
from progressor.bench.rows import add_timers, settle
from progressor.bench.timers import fire_due
from progressor.engine import Engine

STYLES: Mapping[str, Names] = {
    "long": Names("subscription.billing", "process-", uuids=True),
    "short": Names("b", "p"),
}
"""long: UUIDs in a namespace of 20 characters; short: a few characters in one of one."""


@dataclass(frozen=True, slots=True)
class _Counted(Window):
    """A window of so many acts, whatever time they take, after a fifth of them."""

    seconds: float = 0.0
    count: int = 0

    async def warm_up(self, counted: Callable[[], int]) -> None:
        await _grown(counted, self.count // 5)

    async def last(self, counted: Callable[[], int]) -> None:
        await _grown(counted, self.count)


async def _grown(counted: Callable[[], int], by: int) -> None:
    goal = counted() + by
    await until(lambda: counted() >= goal)


async def start(dsn: str, *, clients: int, stored: int, names: str, count: int) -> Figures:
    """Measure clients that start processes."""
    chosen = await _stored(dsn, names, stored)
    async with starting(dsn, clients, chosen, stored=stored) as loop:
        return await loop.run(Meter(dsn), _Counted(count=count))


async def chain(dsn: str, *, processes: int, stored: int, names: str, count: int) -> Figures:
    """Measure the steps of so many processes; the stored ones wait."""
    chosen = await _stored(dsn, names, stored)
    ids = [chosen.process_id(stored + number) for number in range(1, processes + 1)]
    return await chain_of(dsn, chosen.namespace, ids, _Counted(count=count))


async def call(dsn: str, *, clients: int, stored: int, names: str, count: int) -> Figures:
    """Measure clients that call processes drawn at random from the stored ones; one event a call."""
    chosen = await _stored(dsn, names, stored)
    # The same draws in every run.
    drawn = random.Random(stored)
    async with Engine(dsn, [flows.entity(chosen.namespace)]) as engine:

        async def act(_client: int) -> None:
            await engine.client.call(
                chosen.namespace, chosen.process_id(drawn.randint(1, stored)), "add", {}
            )

        loop = ClosedLoop(clients, act)
        figures = await loop.run(Meter(dsn), _Counted(count=count))
    check_counts(dsn, chosen.namespace, None, "call", steps=loop.done, events=loop.done)
    return figures


async def drain(dsn: str, *, due: int, warmup: int, names: str) -> Figures:
    """Measure timers that are all due, after `warmup` of them."""
    chosen, run = STYLES[names], runner(dsn)
    await asyncio.to_thread(unattended, run)
    await asyncio.to_thread(add_timers, run, chosen, due, first=-60.0)
    await asyncio.to_thread(settle, run)
    return await fire_due(dsn, chosen, due, warmup=warmup)


async def _stored(dsn: str, names: str, count: int) -> Names:
    await asyncio.to_thread(add_stored, runner(dsn), STYLES[names], count)
    return STYLES[names]
