"""Writes that do not get through, while reads do: living workers keep their steps, whatever it was.

Rule: real engines and collectors, on servers to which it really happens. A stall lasts for some leases;
then the collectors must have noticed, and judge again, before the steps end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest

from progressor import Engine, Namespace, Process, ProcessStatus, metrics
from progressor.deployment.standalone import Standalone, zombie_collector_apart
from progressor.storage import migrations
from tests.clusters import Address, Cluster, clusters, primary_and_standby
from tests.support import Tables, eventually

NS = "shop.order"
STEPS = 20
LEASE = timedelta(seconds=2)
STALL_SECONDS = 2.5 * LEASE.total_seconds()
OPTIONS = {
    "lease_age": LEASE,
    "heartbeat_interval": LEASE / 8,
    "zombie_interval": LEASE / 20,
    "zombie_grace": timedelta(seconds=60),
}


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a collector judged, at each of its rounds: what lasts for a lease may be over at a look."""
    told: list[bool] = []
    show = metrics.JUDGING.set

    def noted(judges: bool) -> None:
        told.append(judges)
        show(judges)

    monkeypatch.setattr(metrics.JUDGING, "set", noted)
    return told


class Steps:
    """Calls of an engine that run until they are told to end."""

    def __init__(self) -> None:
        self._gate = asyncio.Event()
        self._begun = 0
        self._calls: list[asyncio.Task[int]] = []
        self.namespace = Namespace(NS, state=int)

        @self.namespace.init
        async def start(process: Process[int]) -> None:
            process.state = 0

        @self.namespace.call
        async def work(process: Process[int]) -> int:
            self._begun += 1
            await self._gate.wait()
            process.state += 1
            return process.state

    async def begin(self, engine: Engine) -> None:
        """All of them are running."""
        names = [f"p{place}" for place in range(STEPS)]
        await asyncio.gather(*(engine.client.start(NS, name) for name in names))
        self._calls = [asyncio.create_task(engine.client.call(NS, name, "work")) for name in names]
        await eventually(lambda: self._begun == STEPS, "all begun")

    async def end(self, engine: Engine) -> None:
        """All of them have run once, and none of their processes broke."""
        self._gate.set()
        assert await asyncio.gather(*self._calls) == [1] * STEPS
        page = await engine.client.search(namespace=NS)
        assert {item.status for item in page.items} == {ProcessStatus.RUNNING}
        assert self._begun == STEPS


@asynccontextmanager
async def steps_on(dsn: str) -> AsyncIterator[None]:
    """An engine amid its steps, which must all end well; who judges it is another process."""
    steps = Steps()
    async with Engine(dsn, [steps.namespace], **OPTIONS, zombie_collector=False) as engine:
        await steps.begin(engine)
        yield
        await steps.end(engine)


@asynccontextmanager
async def collector_on(dsn: str, told: list[bool]) -> AsyncIterator[None]:
    """A zombie collector that judges already."""
    async with Standalone(dsn, zombie_collector_apart, **OPTIONS):
        await eventually(lambda: told and told[-1], "it judges")
        told.clear()
        yield


async def judged_again(told: list[bool]) -> None:
    """The collector has noticed, and a lease later it judges again."""
    await eventually(lambda: False in told, "it has noticed")
    await eventually(lambda: told[-1], "it judges again")


@pytest.fixture
def other(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A server of this test's own, migrated."""
    with clusters(1) as (cluster,):
        cluster.initialise()
        cluster.start()
        migrations.upgrade(cluster.dsn)
        yield cluster


async def test_a_table_that_is_locked(dsn: str, other: psycopg.Connection, told: list[bool]) -> None:
    """Somebody holds up every UPDATE of `workers`."""
    async with steps_on(dsn), collector_on(dsn, told):
        with other.transaction():
            other.execute("LOCK TABLE progressor.workers IN EXCLUSIVE MODE")
            await asyncio.sleep(STALL_SECONDS)
        await judged_again(told)


async def test_a_standby_that_is_lost(cluster: Cluster, told: list[bool]) -> None:
    """Every commit waits for a synchronous standby that never answers."""
    async with steps_on(cluster.dsn), collector_on(cluster.dsn, told):
        await asyncio.to_thread(_stand_by, cluster, "nobody")
        try:
            await asyncio.sleep(STALL_SECONDS)
        finally:
            await asyncio.to_thread(_stand_by, cluster, "")
        await judged_again(told)


def _stand_by(cluster: Cluster, name: str) -> None:
    cluster.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    cluster.execute("SELECT pg_reload_conf()")


async def test_a_collector_that_starts_amid_an_outage(
    dsn: str, other: psycopg.Connection, tables: Tables, told: list[bool]
) -> None:
    """It finds nothing but old heartbeats, and knows nothing of why."""
    async with steps_on(dsn):
        apart = Standalone(dsn, zombie_collector_apart, **OPTIONS)
        with other.transaction():
            other.execute("LOCK TABLE progressor.workers IN EXCLUSIVE MODE")
            await asyncio.sleep(STALL_SECONDS)
            starting = asyncio.create_task(apart.__aenter__())
            await eventually(lambda: len(tables.waiting()) == 2, "it waits like the worker")
        await starting
        try:
            await judged_again(told)
        finally:
            await apart.__aexit__(None, None, None)


async def test_a_standby_that_was_promoted_and_is_behind(told: list[bool]) -> None:
    """Its heartbeats are those of some leases ago, and the fail-over was too quick to be a gap."""
    with primary_and_standby() as (primary, standby):
        migrations.upgrade(primary.dsn)
        async with Address(primary.port) as address, steps_on(address.dsn), collector_on(address.dsn, told):
            await standby.follow(primary)
            await asyncio.to_thread(standby.execute, "ALTER SYSTEM SET primary_conninfo = ''")
            await asyncio.to_thread(standby.execute, "SELECT pg_reload_conf()")
            await asyncio.sleep(STALL_SECONDS)
            await asyncio.to_thread(standby.promote)
            address.leads_to = standby.port
            await asyncio.to_thread(primary.stop, "immediate")
            await judged_again(told)
