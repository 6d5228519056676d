"""Handlers that sleep in the transaction of their step, beside callers of other processes.

All are of one namespace, in one worker. The sleepers begin in turn, so that they end in turn.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count, product
from typing import Any, Literal, NamedTuple, TypeAlias

import psycopg
from pydantic import BaseModel

from benchmarks.prices.services import INSERT, PayArgs, check_rows, opened, paid
from progressor import App, Client, Engine, Process
from progressor.bench.chain import check_counts
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window

Writes: TypeAlias = Literal["first", "last"]
Others: TypeAlias = Literal["plain", "connection"]

_PAY = PayArgs(amount=3)
_CALLERS = 32
_OTHERS: tuple[Others, ...] = ("plain", "connection")
_WRITES: tuple[Writes, ...] = ("last", "first")


class RestArgs(BaseModel):
    """The seconds to sleep, and when the row is written: before that, or after it."""

    seconds: float
    writes: Writes


class Beside(NamedTuple):
    """Callers of so many processes, whose calls have a connection or not, and sleepers beside them."""

    others: Others
    processes: int
    writes: Writes
    sleepers: int

    @property
    def name(self) -> str:
        """Its name in tables."""
        others = "calls" if self.others == "plain" else "calls with a connection"
        beside = f"{self.sleepers} that write {self.writes}" if self.sleepers else "none"
        return f"{others}, {self.processes} processes, {beside}"

    @property
    def alone(self) -> Beside:
        """The same without sleepers."""
        return self._replace(writes="first", sleepers=0)


nights = opened("prices.nights")


@nights.call
async def pay(process: Process[int], args: PayArgs) -> int:
    """Pay, with no more than the state."""
    return paid(process, args)


@nights.call
async def pay_recorded(
    process: Process[int], args: PayArgs, *, connection: psycopg.AsyncConnection[Any]
) -> int:
    """Pay, and record it."""
    await connection.execute(INSERT, (process.process_id, args.amount))
    return paid(process, args)


@nights.call
async def rest(
    process: Process[int],
    args: RestArgs,
    *,
    connection: psycopg.AsyncConnection[Any],
    morning: asyncio.Event,
) -> int:
    """Pay and record it, and sleep, until the morning at most."""
    written = (INSERT, (process.process_id, _PAY.amount))
    if args.writes == "first":
        await connection.execute(*written)
    waking = asyncio.ensure_future(morning.wait())
    await asyncio.wait((waking,), timeout=args.seconds)
    waking.cancel()
    if args.writes == "last":
        await connection.execute(*written)
    return paid(process, _PAY)


def besides(sleepers: Sequence[int], processes: Sequence[int]) -> Sequence[Beside]:
    """Return the cases: no sleepers, and each number of them, beside each kind of callers."""
    found = []
    for kind, many in product(_OTHERS, processes):
        alone = Beside(kind, many, "first", 0)
        found += [
            alone,
            *(alone._replace(sleepers=n, writes=writes) for n in sleepers for writes in _WRITES),
        ]
    return found


async def sample(case: Beside, dsn: str, seconds: float, window: Window) -> Figures:
    """Measure the callers of a case; its sleepers sleep for so many seconds each time."""
    prefix = secrets.token_hex(8)
    ids = [f"{prefix}-{number}" for number in range(case.processes)]
    morning, calls = asyncio.Event(), count()
    function = pay if case.others == "plain" else pay_recorded

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[Mapping[str, Any]]:
        yield {"morning": morning}

    async with Engine(dsn, App([nights], lifespan=lifespan)) as engine, asyncio.TaskGroup() as beside:
        client = engine.client
        await asyncio.gather(*(client.start(nights.name, each) for each in ids))
        slept = [
            beside.create_task(
                _sleep(client, f"{prefix}-s{number}", seconds * number / case.sleepers, args, morning)
            )
            for number in range(case.sleepers)
            for args in (RestArgs(seconds=seconds, writes=case.writes),)
        ]

        async def act(_: int) -> None:
            await client.call(function, ids[next(calls) % len(ids)], _PAY)

        loop = ClosedLoop(_CALLERS, act)
        figures = await loop.run(Meter(dsn), window)
        morning.set()
    check_counts(dsn, nights.name, ids, "call", steps=loop.done, events=loop.done)
    check_rows(dsn, ids, 0 if case.others == "plain" else loop.done)
    figures["slept"] = float(sum(each.result() for each in slept))
    if not figures["count"]:
        # At least so long.
        return figures | dict.fromkeys(("p50_ms", "p99_ms"), window.seconds * 1000.0)
    return figures | {"cpu_us": figures["client_cpu_us"] + figures["server_cpu_us"]}


async def _sleep(
    client: Client, process_id: str, delay: float, args: RestArgs, morning: asyncio.Event
) -> int:
    """Sleep again and again, after a delay; return how often."""
    await client.start(nights.name, process_id)
    await asyncio.sleep(delay)
    times = 0
    while not morning.is_set():
        await client.call(rest, process_id, args)
        times += 1
    return times
