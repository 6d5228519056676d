"""start and call: clients that wait for each answer, also far from PostgreSQL or the worker."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

from progressor.bench import flows
from progressor.bench.chain import check_counts
from progressor.bench.children import child
from progressor.bench.databases import runner
from progressor.bench.flows import STYLES, Names, named
from progressor.bench.measure import ClosedLoop, Figures, Turns
from progressor.bench.proxy import delayed
from progressor.bench.rows import add_stored
from progressor.client.client import Client
from progressor.engine import Engine
from progressor.handlers.handler_profile import Fuse


async def start(
    dsn: str,
    *,
    clients: int,
    seconds: float,
    warmup: float = 1.0,
    count: int | None = None,
    names: str | None = None,
    stored: int = 0,
    turns: Turns | None = None,
) -> Figures:
    """Measure clients that start trivial processes and wait; with `names`, beside `stored` others."""
    chosen = named(names, Names(flows.ENTITY, f"{secrets.token_hex(4)}-"))
    if names is not None:
        await asyncio.to_thread(add_stored, runner(dsn), chosen, stored)
    ids: list[str] = []
    async with Engine(dsn, [flows.entity(concurrency=flows.CONCURRENCY, name=chosen.namespace)]) as engine:

        async def act(_client: int) -> None:
            ids.append(chosen.process_id(stored + len(ids) + 1))
            await engine.client.start(chosen.namespace, ids[-1], {})

        loop = ClosedLoop(clients, act)
        figures = await loop.run(dsn, warmup=warmup, seconds=seconds, count=count, turns=turns)
    check_counts(dsn, chosen.namespace, ids, "init", steps=len(ids), events=0)
    return figures


async def among(
    dsn: str,
    *,
    clients: int,
    stored: int,
    names: str,
    seconds: float,
    warmup: float,
    count: int | None = None,
) -> Figures:
    """Measure clients that call processes drawn at random from the stored ones; one event a call."""
    chosen = STYLES[names]
    await asyncio.to_thread(add_stored, runner(dsn), chosen, stored)
    # The same draws in every run.
    drawn = random.Random(stored)  # noqa: S311 - a spread
    async with Engine(dsn, [flows.entity(concurrency=flows.CONCURRENCY, name=chosen.namespace)]) as engine:

        async def act(_client: int) -> None:
            await engine.client.call(
                chosen.namespace, chosen.process_id(drawn.randint(1, stored)), "add", {}
            )

        loop = ClosedLoop(clients, act)
        figures = await loop.run(dsn, warmup=warmup, seconds=seconds, count=count)
    check_counts(dsn, chosen.namespace, None, "call", steps=loop.done, events=loop.done)
    return figures


async def slow(
    dsn: str, *, clients: int, slow_ms: float, fuse: Fuse, seconds: float, warmup: float = 1.0
) -> Figures:
    """Measure clients that call processes of their own, beside calls that block the loop for `slow_ms`."""
    ids = [secrets.token_hex(16) for _ in range(clients + 1)]
    engine = Engine(dsn, [flows.entity(concurrency=flows.CONCURRENCY)], fuse=fuse)
    async with engine, asyncio.TaskGroup() as beside:
        client = engine.client
        await asyncio.gather(*(client.start(flows.ENTITY, each, {}) for each in ids))
        going = True

        async def keep_busy() -> None:
            while going:
                await client.call(flows.ENTITY, ids[-1], "compute", flows.Compute(ms=slow_ms))

        async def act(number: int) -> None:
            await client.call(flows.ENTITY, ids[number], "add", {})

        beside.create_task(keep_busy())
        loop = ClosedLoop(clients, act)
        figures = await loop.run(dsn, warmup=warmup, seconds=seconds)
        going = False
    check_counts(dsn, flows.ENTITY, ids[:-1], "call", steps=loop.done, events=loop.done)
    return figures


async def call(
    dsn: str,
    *,
    clients: int,
    seconds: float,
    warmup: float = 1.0,
    processes: int | None = None,
    where: Literal["worker", "elsewhere"] = "worker",
    turns: Turns | None = None,
) -> Figures:
    """Measure clients that call existing processes, each its own unless `processes` are fewer.

    Each call emits one event. `where` is the OS process of the worker: that of the clients, or another.
    """
    ids = [secrets.token_hex(16) for _ in range(processes or clients)]
    async with _client(dsn, where) as client:
        await asyncio.gather(*(client.start(flows.ENTITY, each, {}) for each in ids))

        async def act(number: int) -> None:
            await client.call(flows.ENTITY, ids[number % len(ids)], "add", {})

        loop = ClosedLoop(clients, act)
        figures = await loop.run(dsn, warmup=warmup, seconds=seconds, turns=turns)
    check_counts(dsn, flows.ENTITY, ids, "call", steps=loop.done, events=loop.done)
    return figures


@asynccontextmanager
async def _client(dsn: str, where: Literal["worker", "elsewhere"]) -> AsyncIterator[Client]:
    """Yield the client of an engine in this OS process, or one whose worker is another OS process."""
    async with AsyncExitStack() as stack:
        if where == "worker":
            engine = Engine(dsn, [flows.entity(concurrency=flows.CONCURRENCY)])
            yield (await stack.enter_async_context(engine)).client
        else:
            await stack.enter_async_context(child("progressor.bench.serve", dsn))
            yield await stack.enter_async_context(Client(dsn))


async def distance(
    dsn: str, *, what: Literal["start", "call"], round_trip_ms: float, seconds: float, warmup: float = 1.0
) -> Figures:
    """Measure one client of a worker whose round trips to PostgreSQL take so much longer.

    `round_trips` counts the round trips of a request on all connections; `waited_round_trips` is the growth
    of p50 by the delay, in round trips.
    """
    workload = start if what == "start" else call
    near = await workload(dsn, clients=1, seconds=seconds, warmup=warmup)
    async with delayed(dsn, round_trip_ms / 2e3) as line:
        far = await workload(line.dsn, clients=1, seconds=seconds, warmup=warmup, turns=line.turns)
    waited = (far["p50_ms"] - near["p50_ms"]) / line.measured_ms
    return far | {
        "near_p50_ms": near["p50_ms"],
        "added_ms": line.measured_ms,
        "waited_round_trips": waited,
    }
