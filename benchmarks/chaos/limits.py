"""Recurring timers and limits under faults: meters, and cooks, of whom only so many work at once.

Rule: each step of a timer leaves one event with the nominal time that it was for. Receipts are in a group
too: they enter it, and go out of it by a removal.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg

from benchmarks.chaos.ledger import POLICY, STEP_TIMEOUT, TENANTS, BadMomentError
from benchmarks.chaos.server import Server
from progressor import Namespace, Process

METERS = "chaos.meter"
COOKS = "chaos.cook"

METER_EVERY = timedelta(seconds=0.4)
METER_PROCESSES = tuple(f"meter-{number}" for number in range(4))
COOK_EVERY = timedelta(seconds=1)
PAUSE = timedelta(seconds=0.03)
# Of each tenant at most a fourth works at once, and most of that is used; after an outage all of it is.
COOK_PROCESSES = {f"{tenant}-{n}": tenant for tenant, limit in TENANTS.items() for n in range(4 * limit)}
_COOKING = (0.1, 0.3)

_CROWDS = """
SELECT g.group_key, coalesce(g.group_limit, (n.options ->> 'group_limit')::bigint), count(*)
FROM progressor.running AS r
JOIN progressor.groups AS g USING (group_no)
JOIN progressor.namespaces AS n USING (namespace_no)
GROUP BY 1, 2
"""
_SAMPLES_EVERY = 0.05


def meters() -> Namespace:
    """Read at each nominal time, in hand if several are due."""
    ns = Namespace(
        METERS,
        feed=True,
        on_zombie="retry",
        zombie_attempts=1_000_000,
        retry_policy=POLICY,
        step_timeout=STEP_TIMEOUT,
        concurrency=10,
    )

    @ns.init
    async def begin(process: Process[Any]) -> None:
        process.state = {"steps": 0}
        process.set_timer(every=METER_EVERY, catch_up="all")

    @ns.timeout
    async def read(process: Process[Any]) -> None:
        await _step(process, seconds=0)

    _add_close(ns, "")
    return ns


def cooks() -> Namespace:
    """Work at each nominal time, if there is room in the kitchen of their tenant."""
    ns = Namespace(
        COOKS,
        feed=True,
        group=lambda args: str(args["tenant"]),
        pause=PAUSE,
        on_zombie="retry",
        zombie_attempts=1_000_000,
        retry_policy=POLICY,
        step_timeout=STEP_TIMEOUT,
        concurrency=10,
    )

    @ns.init
    async def begin(process: Process[Any], _args: dict[str, Any]) -> None:
        process.state = {"steps": 0}
        process.set_timer("cook", every=COOK_EVERY, catch_up="all")

    @ns.timeout("cook")
    async def cook(process: Process[Any]) -> None:
        await _step(process, seconds=random.uniform(*_COOKING))

    @ns.call
    async def stir(process: Process[Any]) -> None:
        process.emit("stirred", key=process.task.idempotency_key)

    _add_close(ns, "cook")
    return ns


async def _step(process: Process[Any], *, seconds: float) -> None:
    process.state["steps"] += 1
    process.emit("came", nominal=process.task.nominal, missed=process.task.missed)
    await asyncio.sleep(seconds)
    if process.state["steps"] % 7 == 6 and process.task.attempts_count == 0:
        raise BadMomentError


def _add_close(ns: Namespace, timer: str) -> None:
    @ns.call
    async def close(process: Process[Any]) -> None:
        process.unset_timer(timer)


class Crowds:
    """The most of each group that were in `running` at one moment, seen by looking again and again."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.looks = 0
        self.most: Counter[str] = Counter()
        self.limits: dict[str, int | None] = {}

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look until the end, whatever becomes of the server."""
        looking = asyncio.create_task(self._look_forever())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look_forever(self) -> None:
        while True:
            with contextlib.suppress(psycopg.Error):
                await self._look()
            await asyncio.sleep(_SAMPLES_EVERY)

    async def _look(self) -> None:
        connecting = psycopg.AsyncConnection.connect(
            self._server.dsn, autocommit=True, application_name="chaos"
        )
        async with await connecting as connection:
            while True:
                cursor = await connection.execute(_CROWDS.encode())
                for group, limit, count in await cursor.fetchall():
                    self.limits[group] = limit
                    self.most[group] = max(self.most[group], count)
                self.looks += 1
                await asyncio.sleep(_SAMPLES_EVERY)
