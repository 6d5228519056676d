"""start and call: clients that wait for each answer, also away from the worker."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

from progressor.bench import flows
from progressor.bench.chain import check_counts
from progressor.bench.children import child
from progressor.bench.flows import Names
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window
from progressor.client.client import Client
from progressor.engine import Engine
from progressor.handlers.handler_profile import Fuse

Where = Literal["worker", "elsewhere"]
"""The OS process of the clients: that of the worker, or another one."""


async def start(dsn: str, *, clients: int, seconds: float, warmup: float = 1.0) -> Figures:
    """Measure clients that start trivial processes and wait."""
    async with starting(dsn, clients, Names(flows.ENTITY, f"{secrets.token_hex(4)}-")) as loop:
        return await loop.run(Meter(dsn), Window(seconds, warmup))


@asynccontextmanager
async def starting(dsn: str, clients: int, names: Names, *, stored: int = 0) -> AsyncIterator[ClosedLoop]:
    """Yield clients that start processes, numbered after the `stored` ones; check the tables after."""
    ids: list[str] = []
    async with Engine(dsn, [flows.entity(names.namespace)]) as engine:

        async def act(_client: int) -> None:
            ids.append(names.process_id(stored + len(ids) + 1))
            await engine.client.start(names.namespace, ids[-1], {})

        yield ClosedLoop(clients, act)
    check_counts(dsn, names.namespace, ids, "init", steps=len(ids), events=0)


async def call(
    dsn: str,
    *,
    clients: int,
    seconds: float,
    warmup: float = 1.0,
    processes: int | None = None,
    where: Where = "worker",
) -> Figures:
    """Measure clients that call existing processes, each its own unless `processes` are fewer."""
    async with calling(dsn, clients, processes=processes, where=where) as loop:
        return await loop.run(Meter(dsn), Window(seconds, warmup))


@asynccontextmanager
async def calling(
    dsn: str, clients: int, *, processes: int | None = None, where: Where = "worker"
) -> AsyncIterator[ClosedLoop]:
    """Yield clients whose calls emit one event each; check the tables after."""
    ids = [secrets.token_hex(16) for _ in range(processes or clients)]
    async with _client(dsn, where) as client:
        await asyncio.gather(*(client.start(flows.ENTITY, each, {}) for each in ids))

        async def act(number: int) -> None:
            await client.call(flows.ENTITY, ids[number % len(ids)], "add", {})

        loop = ClosedLoop(clients, act)
        yield loop
    check_counts(dsn, flows.ENTITY, ids, "call", steps=loop.done, events=loop.done)


@asynccontextmanager
async def _client(dsn: str, where: Where) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        if where == "worker":
            yield (await stack.enter_async_context(Engine(dsn, [flows.entity()]))).client
        else:
            await stack.enter_async_context(child("progressor.bench.serve", dsn))
            yield await stack.enter_async_context(Client(dsn))


async def slow(
    dsn: str, *, clients: int, slow_ms: float, fuse: Fuse, seconds: float, warmup: float = 1.0
) -> Figures:
    """Measure clients that call processes of their own, beside calls that block the loop for `slow_ms`."""
    ids = [secrets.token_hex(16) for _ in range(clients + 1)]
    engine = Engine(dsn, [flows.entity()], fuse=fuse)
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
        figures = await loop.run(Meter(dsn), Window(seconds, warmup))
        going = False
    check_counts(dsn, flows.ENTITY, ids[:-1], "call", steps=loop.done, events=loop.done)
    return figures
