"""A standby that lagged is promoted, and hands out the numbers of what it lost: nobody is deceived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing

import psycopg
import pytest

from progressor import (
    Client,
    Engine,
    Namespace,
    NamespaceNotFound,
    ProcessNotFound,
    Receipt,
    RequestLost,
)
from progressor.storage import migrations
from tests.acceptance.support import NS, Act, Scripted, until
from tests.clusters import Address, Cluster, primary_and_standby
from tests.support import check_invariants

# A sequence is ahead by 32 numbers in the log: what is lost must be more.
LOST = 80
AGAIN = 3 * LOST

Pair = tuple[Cluster, Cluster]


@pytest.fixture
async def lagging() -> AsyncIterator[Pair]:
    """A primary with a process, and a standby that has that and gets nothing more."""
    with primary_and_standby() as (primary, standby):
        migrations.upgrade(primary.dsn)
        async with Engine(primary.dsn, [Scripted().namespace]) as engine:
            await engine.client.start(NS, "p", Act(add=1))
        await standby.follow(primary)
        await standby.fall_behind()
        yield primary, standby


async def fail_over(primary: Cluster, standby: Cluster) -> None:
    await asyncio.to_thread(primary.stop, "immediate")
    await asyncio.to_thread(standby.promote)


def numbers(server: Cluster, sql: str) -> set[int]:
    return {row[0] for row in server.execute(sql)}  # type: ignore[misc] # numbers


async def test_who_waits_or_has_a_receipt_is_told_that_it_is_lost(lagging: Pair) -> None:
    """No call gets the answer of another that has its number now; asked again with its key it is run."""
    primary, standby = lagging
    async with Address(primary.port) as address, Client(address.dsn) as client:
        waiting = [
            asyncio.create_task(client.call(NS, "p", "act", Act(add=1), timeout=120)) for _ in range(LOST)
        ]
        accepted = "SELECT task_id FROM progressor.tasks WHERE status = 'waiting'"
        await until(lambda: asyncio.to_thread(numbers, primary, accepted), lambda found: len(found) == LOST)
        receipts = [await client.submit_call(NS, "p", "act", Act(add=1)) for _ in range(LOST)]
        lost = await asyncio.to_thread(numbers, primary, accepted)
        address.leads_to = standby.port
        await fail_over(primary, standby)
        async with Engine(standby.dsn, [Scripted().namespace]) as engine:
            calls = (engine.client.call(NS, "p", "act", Act(add=1)) for _ in range(AGAIN))
            assert sorted(await asyncio.gather(*calls)) == list(range(2, AGAIN + 2))
            now = await asyncio.to_thread(numbers, standby, "SELECT task_id FROM progressor.tasks")
            assert len(lost & now) > LOST
            told = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(each) for each in told} == {RequestLost}
            for receipt in receipts:
                for known in (receipt, Receipt(*receipt[:5], fingerprint=receipt.fingerprint)):
                    with pytest.raises(RequestLost, match=r"fail-over.*ask again") as caught:
                        await client.answer(known)
                    assert caught.value.idempotency_key == receipt.idempotency_key
            key = receipts[0].idempotency_key
            again = await client.call(NS, "p", "act", Act(add=1), idempotency_key=key)
            assert again == AGAIN + 2
    check_invariants(standby.dsn)


async def test_a_start_that_is_lost_with_its_process(lagging: Pair) -> None:
    """Its receipt says so, also if its namespace is lost; asked again with its key it runs."""
    primary, standby = lagging
    async with Engine(primary.dsn, [Namespace("late")]), Client(primary.dsn) as client:
        kept = [await client.submit_start(name, "new", Act(add=1)) for name in (NS, "late")]
    await fail_over(primary, standby)
    async with Engine(standby.dsn, [Scripted().namespace]) as engine:
        client = engine.client
        for each in kept:
            with pytest.raises(RequestLost, match="ask again") as caught:
                await client.answer(Receipt(*each[:5], fingerprint=each.fingerprint))
            assert (caught.value.idempotency_key, caught.value.is_certain) == (each.idempotency_key, False)
        task_id, fingerprint = kept[0].task_id, kept[0].fingerprint
        with pytest.raises(RequestLost):
            await client.redo(NS, "new", task_id, fingerprint=fingerprint)
        # Nothing but the fingerprint shows that there was such a task.
        with pytest.raises(ProcessNotFound):
            await client.result(NS, "new", task_id)
        with pytest.raises(NamespaceNotFound):
            await client.result("late", "new", task_id)
        assert await client.start(NS, "new", Act(add=1), idempotency_key=kept[0].idempotency_key) == 1
    check_invariants(standby.dsn)


async def test_a_removal_that_is_tried_again_spares_the_innocent(lagging: Pair) -> None:
    """It ends the life that it found, be it lost, and no process that was born under its number since."""
    primary, standby = lagging
    async with Address(primary.port) as address, Client(address.dsn) as client:
        for place in range(LOST):
            await client.submit_start(NS, f"meant-{place}", Act())
        last = f"meant-{LOST - 1}"
        with closing(psycopg.connect(primary.dsn)) as holder:
            ((number,),) = holder.execute(
                "SELECT process_no FROM progressor.processes WHERE process_id = %s FOR UPDATE", [last]
            ).fetchall()
            removing = asyncio.create_task(client.remove(NS, last))
            locked = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            await until(lambda: asyncio.to_thread(primary.execute, locked), bool)
            # To nowhere, until the number is somebody else's.
            address.leads_to = 1
            await fail_over(primary, standby)
            async with Engine(standby.dsn, [Scripted().namespace]) as engine:
                for place in range(AGAIN):
                    await engine.client.start(NS, f"innocent-{place}", Act())
                born = await asyncio.to_thread(
                    numbers, standby, "SELECT process_no FROM progressor.processes"
                )
                assert number in born
                address.leads_to = standby.port
                await removing
                left = await asyncio.to_thread(
                    numbers, standby, "SELECT process_no FROM progressor.processes"
                )
                assert left == born
    check_invariants(standby.dsn)
