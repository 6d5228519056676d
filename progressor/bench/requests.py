"""start and call: clients that ask and wait for the answer; also from afar and from another OS process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

from progressor.bench import flows
from progressor.bench.chain import check_counts
from progressor.bench.children import child
from progressor.bench.measure import ClosedLoop, Figures, Turns
from progressor.bench.proxy import delayed
from progressor.client import Client
from progressor.engine import Engine


async def start(
    dsn: str, *, clients: int, seconds: float, warmup: float = 1.0, turns: Turns | None = None
) -> Figures:
    """Clients start trivial processes and wait for the answer."""
    tag = secrets.token_hex(4)
    ids: list[str] = []
    async with Engine(dsn, [flows.entity(concurrency=flows.CONCURRENCY)]) as engine:

        async def act(_client: int) -> None:
            ids.append(f"{tag}-{len(ids)}")
            await engine.client.start(flows.ENTITY, ids[-1], {})

        loop = ClosedLoop(clients, act)
        figures = await loop.run(dsn, warmup=warmup, seconds=seconds, turns=turns)
    check_counts(dsn, flows.ENTITY, ids, "init", steps=len(ids), events=0)
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
    """Clients call existing processes, each its own unless `processes` are fewer; one event a call."""
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
    """The client of an engine in this process, or one whose only worker is another OS process."""
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
    """One client of a worker that is so much farther away from PostgreSQL, and its round trips.

    `round_trips` counts how often the talk changed its direction, on all connections, per request;
    `waited_round_trips` is what p50 grew by, in round trips, beside the same without the delay.
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
