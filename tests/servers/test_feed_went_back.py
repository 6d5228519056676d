"""Readers of the feed of a database that was dumped and restored, or whose standby took over, later or not.

Rule: nothing is told twice or passed over; who has read what is lost is told so, and can go on as told.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from progressor import (
    App,
    Client,
    Engine,
    FeedBatch,
    FeedEvent,
    FeedTruncated,
    Namespace,
    Process,
    Projection,
    Subscription,
    SubscriptionLost,
)
from progressor.storage import migrations
from tests import postgres
from tests.clusters import Address, Cluster, primary_and_standby
from tests.conftest import Databases
from tests.feed.starts import FIRST
from tests.support import check_invariants, eventually

till = Namespace("till", state=int, feed=True)
_ADD = """
INSERT INTO totals (account, total) VALUES (%s, %s)
ON CONFLICT (account) DO UPDATE SET total = totals.total + excluded.total
"""


@till.init
async def begin(process: Process[int]) -> None:
    """Begin at nothing."""
    process.state = 0


@till.call
async def add(process: Process[int], amount: int) -> None:
    """Emit an amount."""
    process.emit("added", amount=amount)


totals = Projection("totals")


@totals.on("till", "added")
async def added(event: FeedEvent, connection: psycopg.AsyncConnection) -> None:
    """Sum up."""
    await connection.execute(_ADD, (event.process_id, event.payload["amount"]))


@totals.clear
async def clear(connection: psycopg.AsyncConnection) -> None:
    """Forget the sums."""
    await connection.execute("DELETE FROM totals")


async def work(dsn: str, numbers: range) -> None:
    """Have a process emit these, by an engine of its own."""
    async with Engine(dsn, [till]) as engine:
        await add_all(engine.client, numbers)


async def add_all(client: Client, numbers: range) -> None:
    """Have a process emit these; the first time it is started."""
    if numbers[0] == 1:
        await client.start("till", "p")
    for number in numbers:
        await client.call("till", "p", "add", number)


async def take(count: int, events: AsyncIterator[FeedEvent]) -> list[FeedEvent]:
    """The next so many."""
    async with asyncio.timeout(30):
        return [await anext(events) for _ in range(count)]


async def take_batch(batches: AsyncIterator[FeedBatch]) -> FeedBatch:
    """The next batch."""
    async with asyncio.timeout(30):
        return await anext(batches)


async def take_in_batches(
    count: int, batches: AsyncIterator[FeedBatch], *, commits: bool = False
) -> list[FeedEvent]:
    """The next so many, in however many batches."""
    found: list[FeedEvent] = []
    while len(found) < count:
        batch = await take_batch(batches)
        found += batch
        if commits:
            await batch.commit()
    return found


def amounts(events: Sequence[FeedEvent]) -> list[int]:
    return [each.payload["amount"] for each in events]


def sums(server: Cluster) -> list[tuple[object, ...]]:
    return server.execute("SELECT account, total FROM totals")


def ledger(client: Client, name: str) -> Subscription:
    """A reader of a durable subscription from the beginning."""
    return client.subscription(name, start="beginning", lease_age=timedelta(seconds=3))


class Backup:
    """A dump of the schema, as the pages say, to be restored into databases of its own."""

    def __init__(self, dsn: str, file: Path, databases: Databases) -> None:
        self._file, self._databases = file, databases
        _program("pg_dump", "--format=custom", f"--file={file}", dsn)

    @contextmanager
    def restored(self) -> Iterator[str]:
        """A new database with what was dumped."""
        name = self._databases.make("template0")
        dsn = self._databases.dsn(name)
        _program("pg_restore", f"--dbname={dsn}", "--exit-on-error", str(self._file))
        yield dsn
        check_invariants(dsn)
        self._databases.drop(name)


def _program(name: str, *arguments: str) -> None:
    program = postgres.installation().program(name)
    if not program.exists():
        pytest.skip(f"the PostgreSQL under test has no {name}")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_a_restored_database_goes_on(dsn: str, databases: Databases, tmp_path: Path) -> None:
    """A position and a checkpoint of before the dump go on in the copy: nothing twice, nothing missed."""
    await work(dsn, range(1, 6))
    async with Client(dsn) as client:
        seen = await take(3, client.subscribe(after="beginning"))
        async with client.subscription("ledger", start="beginning") as events:
            await take_in_batches(2, events.batches(max=2), commits=True)
    # Rows that nobody has read have no position yet.
    await work(dsn, range(6, 8))
    backup = Backup(dsn, tmp_path / "dump", databases)
    with backup.restored() as copy:
        async with Engine(copy, [till]) as engine:
            client = engine.client
            await add_all(client, range(8, 9))
            assert amounts(await take(5, client.subscribe(after=seen[-1].position))) == [4, 5, 6, 7, 8]
            async with client.subscription("ledger") as events:
                assert amounts(await take_in_batches(6, events.batches())) == [3, 4, 5, 6, 7, 8]


async def test_an_older_state_is_restored(dsn: str, databases: Databases, tmp_path: Path) -> None:
    """Who has read what is lost is told so, for good, and can begin anew; others just go on."""
    await work(dsn, range(1, 6))
    async with Client(dsn) as client, ledger(client, "ledger") as events:
        batches = events.batches()
        await (await take_batch(batches)).commit()
        reader = client.subscribe(after=FIRST)
        kept = await take(5, reader)
        backup = Backup(dsn, tmp_path / "dump", databases)
        await work(dsn, range(6, 9))
        lost = await take(3, reader)
        done = await take_in_batches(3, batches, commits=True)
    with backup.restored() as copy:
        async with Engine(copy, [till]) as engine:
            client = engine.client
            for more in range(106, 112):
                # Before there are other events at their positions, and after.
                for each in lost:
                    with pytest.raises(FeedTruncated, match=r'lost it, in a restore.*after="beginning"'):
                        await take(1, client.subscribe(after=each.position))
                await add_all(client, range(more, more + 1))
            anew = list(range(106, 112))
            assert amounts(await take(6, client.subscribe(after=kept[-1].position))) == anew
            assert amounts(await take(11, client.subscribe(after="beginning"))) == [1, 2, 3, 4, 5, *anew]
            with pytest.raises(FeedTruncated):
                await client.move_subscription("ledger", lost[-1].position)
            async with client.subscription("ledger") as events:
                found = await take_in_batches(6, events.batches())
            assert amounts(found) == anew
            for of_both in (lost, done):
                assert not {each.id for each in of_both} & {each.id for each in found}
                assert not {each.position for each in of_both} & {each.position for each in found}


@pytest.fixture
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary with the tables, and its standby."""
    with primary_and_standby() as (primary, standby):
        migrations.upgrade(primary.dsn)
        primary.execute("CREATE TABLE totals (account text PRIMARY KEY, total bigint NOT NULL)")
        yield primary, standby


async def test_a_standby_takes_over_that_was_behind(pair: tuple[Cluster, Cluster]) -> None:
    """Readers that live meanwhile are told what is lost; checkpoints go on where the standby has them."""
    primary, standby = pair
    async with (
        Address(primary.port) as address,
        Engine(address.dsn, App([till], projections=[totals])) as engine,
        Client(address.dsn) as client,
        ledger(client, "doubtful") as doubtful,
        ledger(client, "ahead") as ahead,
    ):
        await add_all(engine.client, range(1, 6))
        reader, doubtful_batches, ahead_batches = (
            client.subscribe(after=FIRST),
            doubtful.batches(),
            ahead.batches(),
        )
        await take(5, reader)
        for batches in (doubtful_batches, ahead_batches):
            await take_in_batches(5, batches, commits=True)
        await eventually(lambda: sums(primary) == [("p", 15)], "the sum")
        await standby.follow(primary)
        await standby.fall_behind()
        await add_all(engine.client, range(6, 9))
        lost = await take(3, reader)
        doubtful_batch = await take_batch(doubtful_batches)
        await take_in_batches(3, ahead_batches, commits=True)
        await eventually(lambda: sums(primary) == [("p", 36)], "the sum")
        address.leads_to = standby.port
        await asyncio.to_thread(primary.stop, "immediate")
        await asyncio.to_thread(standby.promote)
        # A checkpoint that the new primary cannot have is refused: the subscription would be stuck there.
        with pytest.raises(SubscriptionLost, match="a fail-over lost what was read"):
            await doubtful_batch.commit()
        with pytest.raises(FeedTruncated, match="enter it again, to go on behind its checkpoint"):
            await take_batch(ahead_batches)
        with pytest.raises(FeedTruncated, match='after="beginning"'):
            await take(1, reader)
        await add_all(engine.client, range(106, 116))
        anew = list(range(106, 116))
        with pytest.raises(FeedTruncated, match='after="beginning"'):
            await take(1, client.subscribe(after=lost[-1].position))
        assert amounts(await take(15, client.subscribe(after="beginning"))) == [1, 2, 3, 4, 5, *anew]
        assert amounts(await take_in_batches(10, doubtful_batches, commits=True)) == anew
        await eventually(lambda: sums(standby) == [("p", 15 + sum(anew))], "the sum")
        await ahead.__aexit__(None, None, None)
        async with ledger(client, "ahead") as entered:
            assert amounts(await take_in_batches(10, entered.batches())) == anew
        assert not any(each.is_lost for each in await client.subscriptions())
    check_invariants(standby.dsn)
