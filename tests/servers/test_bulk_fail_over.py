"""A standby becomes the primary in the middle of a bulk: no repair and no redo is lost or done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from progressor import Client, Engine, HandlerFailed, Namespace, Process
from progressor.storage import migrations
from tests.acceptance.conftest import MODES, Options
from tests.acceptance.support import Gate, outline, until
from tests.clusters import Address, Cluster, primary_and_standby
from tests.support import check_invariants

NS = "shop.order"
NAMES = [f"p{place}" for place in range(20)]
# Repaired before the fail-over; the repairs of all others run through it.
FREE = 5
REPAIRED = [("init", "finished"), ("call", "error"), ("repair", "finished"), ("call", "finished")]


class Orders:
    """Processes that break until they are mended; but for the first, their repairs stop at a gate."""

    def __init__(self) -> None:
        self.namespace = Namespace(NS, state=int)
        self.gate = Gate()
        self.is_mended = False
        self.ran: list[tuple[str, str]] = []

        @self.namespace.init
        async def begin(process: Process[int]) -> None:
            process.state = 0

        @self.namespace.call
        async def add(process: Process[int]) -> None:
            if not self.is_mended:
                raise ValueError("a bug")
            self.ran.append(("redo", process.process_id))
            process.state += 1

        @self.namespace.repair
        async def mend(process: Process[int]) -> None:
            self.ran.append(("repair", process.process_id))
            if process.process_id not in NAMES[:FREE]:
                await self.gate.pass_through()
            process.state += 100


@pytest.fixture
def synchronous() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary with the tables, and a standby that has each commit before it is told."""
    with primary_and_standby() as (primary, standby):
        migrations.upgrade(primary.dsn)
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        yield primary, standby


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
async def test_a_fail_over_amid_a_bulk(synchronous: tuple[Cluster, Cluster], mode: Options) -> None:
    """Each process is repaired once, and the request that broke it runs once more."""
    primary, standby = synchronous
    orders = Orders()
    # What is fused runs again if its transaction is lost: here each run of a handler counts.
    async with (
        Address(primary.port) as address,
        Engine(address.dsn, [orders.namespace], **{**mode, "fuse": "never"}) as engine,
    ):
        client = engine.client
        await break_all(client)
        orders.is_mended = True
        bulk = await client.repair_all(NS, redo=True, rate=20)
        await until(lambda: client.bulk(bulk.bulk_id), lambda found: found.redone >= FREE)
        await orders.gate.entered()
        address.leads_to = standby.port
        await asyncio.to_thread(primary.stop, "immediate")
        # Repairs end while there is no primary.
        orders.gate.open()
        await asyncio.to_thread(standby.promote)
        done = await until(lambda: client.bulk(bulk.bulk_id), lambda found: found.status.is_final)
        assert (done.status, done.begun, done.repaired, done.redone) == ("finished", 20, 20, 20)
        for name in NAMES:
            process = await until(partial(client.get, NS, name), lambda found: found.state == 101)
            assert process.status == "running"
            assert await outline(client, name, namespace=NS) == REPAIRED
    assert sorted(orders.ran) == sorted((kind, name) for kind in ("repair", "redo") for name in NAMES)
    check_invariants(standby.dsn)


async def break_all(client: Client) -> None:
    await asyncio.gather(*(client.start(NS, name) for name in NAMES))
    for failed in await asyncio.gather(
        *(client.call(NS, name, "add") for name in NAMES), return_exceptions=True
    ):
        assert isinstance(failed, HandlerFailed)
