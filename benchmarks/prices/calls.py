"""Prices of a call: plain, typed, with a resource, with middleware, with a connection, and by hand."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal, NamedTuple

from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.prices import services
from benchmarks.prices.services import BankResource, DriverPool, PayArgs
from benchmarks.workloads.proxy import Line, delayed
from progressor import App, CallNext, Client, Engine, Intent, Middleware, Namespace, StepView
from progressor.bench.chain import check_counts
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window
from progressor.storage import parsed

_PAY = PayArgs(amount=3)
_STRINGS, _TYPED, _NOT_FUSED = "by strings", "typed", "typed, never fused"
_OWN_ENGINE, _OWN_DRIVER = "by hand: SQLAlchemy", "by hand: psycopg"
# Calls whose round trips are counted, one at a time.
_COUNTED = 50

Act = Callable[[Client, str], Awaitable[Any]]
Opened = Callable[[str], AbstractAsyncContextManager[Mapping[str, Any]]]


class CallPrice(NamedTuple):
    """One way to call and to serve; `beside` names the one to which it is compared."""

    name: str
    beside: str
    namespace: Namespace
    act: Act
    resources: Opened | None = None
    middleware: tuple[Middleware, ...] = ()
    fuse: Literal["learned", "never"] = "learned"
    adds_rows: bool = False

    def engine(self, dsn: str) -> Engine:
        """Return an engine that serves it."""
        resources = self.resources
        lifespan = None if resources is None else lambda _: resources(dsn)
        app = App([self.namespace], lifespan=lifespan, middleware=self.middleware)
        return Engine(dsn, app, fuse=self.fuse)


async def _passing(step: StepView, call_next: CallNext) -> Intent:
    return await call_next(step)


@asynccontextmanager
async def _bank(_dsn: str) -> AsyncIterator[Mapping[str, Any]]:
    yield {"bank": BankResource()}


@asynccontextmanager
async def _database(dsn: str) -> AsyncIterator[Mapping[str, Any]]:
    database = create_async_engine(
        "postgresql+psycopg://", connect_args=parsed(dsn), pool_size=services.POOL, max_overflow=0
    )
    try:
        async with DriverPool.opened(dsn) as drivers:
            yield {"database": database, "drivers": drivers}
    finally:
        await database.dispose()


async def _by_strings(client: Client, process_id: str) -> None:
    await client.call(services.plain.name, process_id, "pay", {"amount": 3})


def _typed(function: Any) -> Act:
    async def act(client: Client, process_id: str) -> None:
        await client.call(function, process_id, _PAY)

    return act


PRICES = (
    CallPrice(_STRINGS, _STRINGS, services.plain, _by_strings),
    CallPrice(_TYPED, _STRINGS, services.plain, _typed(services.pay)),
    CallPrice("a resource", _TYPED, services.banked, _typed(services.pay_bank), _bank),
    CallPrice("one middleware", _TYPED, services.plain, _typed(services.pay), middleware=(_passing,)),
    CallPrice(_NOT_FUSED, _TYPED, services.plain, _typed(services.pay), fuse="never"),
    CallPrice("a plain function", _TYPED, services.plain, _typed(services.pay_in_thread)),
    CallPrice(
        _OWN_ENGINE,
        _NOT_FUSED,
        services.by_hand,
        _typed(services.pay_own_engine),
        _database,
        adds_rows=True,
    ),
    CallPrice(
        _OWN_DRIVER,
        _NOT_FUSED,
        services.by_hand,
        _typed(services.pay_own_driver),
        _database,
        adds_rows=True,
    ),
    *(
        CallPrice(f"connection: {what}", beside, services.recorded, _typed(function), adds_rows=True)
        for what, beside, function in (
            ("AsyncConnection", _OWN_ENGINE, services.pay_connection),
            ("psycopg", _OWN_DRIVER, services.pay_driver),
            ("AsyncSession", _OWN_ENGINE, services.pay_session),
            ("Session, in a thread", _OWN_ENGINE, services.pay_blocking_session),
        )
    ),
)
"""The ways that are compared, each behind those to which another is compared."""


@asynccontextmanager
async def calling(price: CallPrice, dsn: str, callers: int) -> AsyncIterator[ClosedLoop]:
    """Yield callers, each of a process of its own; check the tables after."""
    ids = [secrets.token_hex(16) for _ in range(callers)]
    async with price.engine(dsn) as engine:
        await asyncio.gather(*(engine.client.start(price.namespace.name, each) for each in ids))

        async def act(number: int) -> None:
            await price.act(engine.client, ids[number])

        loop = ClosedLoop(callers, act)
        yield loop
    check_counts(dsn, price.namespace.name, ids, "call", steps=loop.done, events=loop.done)
    services.check_rows(dsn, ids, loop.done if price.adds_rows else 0)


async def sample(price: CallPrice, dsn: str, callers: int, window: Window) -> Figures:
    """Measure one window of so many callers."""
    async with calling(price, dsn, callers) as loop:
        figures = await loop.run(Meter(dsn), window)
    return figures | {"cpu_us": figures["client_cpu_us"] + figures["server_cpu_us"]}


async def round_trips(dsn: str) -> Mapping[str, float]:
    """Return the round trips to PostgreSQL of a lone call at each price, on all connections."""
    async with delayed(dsn, 0) as line:
        return {price.name: await _round_trips(price, line) for price in PRICES}


async def _round_trips(price: CallPrice, line: Line) -> float:
    process_id = secrets.token_hex(16)
    async with price.engine(line.dsn) as engine:
        await engine.client.start(price.namespace.name, process_id)
        before = 0
        # The first calls tell the engine whether the handler waits.
        for _ in range(2):
            before = await line.turns()
            for _ in range(_COUNTED):
                await price.act(engine.client, process_id)
        return (await line.turns() - before) / _COUNTED
