"""The feed behind PgBouncer in transaction mode: its readers, without hints and with a listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from progressor import (
    App,
    Client,
    Engine,
    FeedEvent,
    Namespace,
    Process,
    Projection,
    RetryPolicy,
    Subscription,
)
from progressor.client.feed import subscription
from tests.acceptance.conftest import MODES, Options, of_a_client
from tests.acceptance.support import until
from tests.pgbouncer.conftest import PgBouncer
from tests.support import check_invariants, eventually

till = Namespace("till", state=int, feed=True)
NAMES = ["p1", "p2", "p3", "p4", "p5", "p6"]
ALL = {name: [1, 2, 3] for name in NAMES}
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
    """Add an amount."""
    process.state = (process.state or 0) + amount
    process.emit("added", amount=amount)


@till.call
async def leave(process: Process[int]) -> None:
    """Go."""
    process.remove()


totals = Projection("totals")


@totals.on("till", "added")
async def added(event: FeedEvent, connection: psycopg.AsyncConnection) -> None:
    """Sum up."""
    await connection.execute(_ADD, (event.process_id, event.payload["amount"]))


@pytest.fixture(params=["no hints", "a listener past the pooler"])
def options(request: pytest.FixtureRequest, dsn: str) -> Options:
    """The two ways of the page on PgBouncer."""
    return MODES["scanning"] if request.param == "no hints" else {"listen_database_url": dsn}


@pytest.fixture
async def engine(dsn: str, pooler: PgBouncer, options: Options) -> AsyncIterator[Engine]:
    """An engine behind the pooler, with the projection."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("CREATE TABLE public.totals (account text PRIMARY KEY, total bigint NOT NULL)")
    async with Engine(pooler.dsn(dsn), App([till], projections=[totals]), **options) as engine:
        yield engine
    check_invariants(dsn)


@pytest.fixture
async def client(engine: Engine, dsn: str, pooler: PgBouncer, options: Options) -> AsyncIterator[Client]:
    """A client behind the pooler that shares nothing with the engine."""
    async with Client(pooler.dsn(dsn), **of_a_client(options)) as client:
        yield client


async def work(engine: Engine, *, rounds: int = 3) -> None:
    """Have each process add 1, 2 and so on."""
    for name in NAMES:
        await engine.client.start("till", name)
    for amount in range(1, rounds + 1):
        await asyncio.gather(*(engine.client.call("till", name, "add", amount) for name in NAMES))


@asynccontextmanager
async def beside(coroutine: Any) -> AsyncIterator[None]:
    """Run something in the block."""
    task = asyncio.create_task(coroutine)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def by_name(seen: Sequence[FeedEvent]) -> dict[str, list[int]]:
    """The amounts of each process, in the order in which they came."""
    found: dict[str, list[int]] = {}
    for each in seen:
        found.setdefault(each.process_id, []).append(each.payload["amount"])
    return found


async def test_a_reader(engine: Engine, client: Client) -> None:
    """A loop gets what is stored and what comes, once each; another one goes on behind its position."""
    await engine.client.start("till", "before")
    await engine.client.call("till", "before", "add", 9)
    seen: list[FeedEvent] = []

    async def follow(after: str, until: int) -> None:
        async with asyncio.timeout(30):
            async for event in client.subscribe(after=after):
                seen.append(event)
                if len(seen) == until:
                    return

    async with beside(work(engine)):
        await follow("beginning", 7)
        await follow(seen[-1].position, 19)
    assert by_name(seen) == {"before": [9], **ALL}


async def test_a_watch(engine: Engine, client: Client) -> None:
    """It tells each event of its process, and that it was removed."""
    await engine.client.start("till", "p1")
    amounts: list[int] = []
    async with asyncio.timeout(30), aclosing(client.watch("till", "p1", state=True)) as changes:  # type: ignore[type-var]
        assert (await anext(changes)).state == 0
        for amount in (1, 2):
            await engine.client.call("till", "p1", "add", amount)
        await engine.client.call("till", "p1", "leave")
        async for change in changes:
            amounts += [event.payload["amount"] for event in change.events]
    assert (amounts, change.status) == ([1, 2], "removed")


async def test_two_readers_of_a_subscription(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share its slices; each event is committed once, in order by process."""
    # They look for their share often, and none is taken for dead because this process was held up.
    monkeypatch.setattr(subscription, "_BEATS", 1000)
    seen: list[FeedEvent] = []

    async def read(events: Subscription) -> None:
        async for batch in events.batches(max=2):
            await batch.commit()
            seen.extend(batch)

    def reader(of: Client) -> Subscription:
        return of.subscription("ledger", slices=4, lease_age=timedelta(minutes=5))

    async with (
        reader(engine.client) as first,
        reader(client) as second,
        beside(read(first)),
        beside(read(second)),
    ):
        await eventually(lambda: (len(first.slices), len(second.slices)) == (2, 2), "two slices each")
        await work(engine)
        # A batch is seen when its commit has been answered.
        await eventually(lambda: len(seen) >= 18, "all events")
        await until(client.subscriptions, lambda known: all(each.behind == 0 for each in known))
    assert by_name(seen) == ALL


async def test_a_projection(engine: Engine, dsn: str) -> None:
    """The engine runs it: its rows are the sums of the events."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        await work(engine)
        await eventually(
            lambda: (
                dict(admin.execute("SELECT account, total FROM totals").fetchall())
                == dict.fromkeys(NAMES, 6)
            ),
            "all sums",
        )


class Books:
    """A sink that keeps what it gets, and cannot be reached at first."""

    def __init__(self) -> None:
        self.got: list[FeedEvent] = []
        self.is_away = True

    async def send(self, events: Sequence[FeedEvent]) -> None:
        if self.is_away:
            self.is_away = False
            raise ConnectionError("nobody there")
        self.got += events

    async def close(self) -> None:
        """Nothing is open."""


async def test_forwarding(engine: Engine, client: Client) -> None:
    """A sink gets each event once, in order by process; who takes over goes on behind the checkpoint."""
    books = Books()
    quick = RetryPolicy(initial_interval=timedelta(milliseconds=1))
    async with beside(client.forward("books", books, start="beginning", retries=quick)):
        await work(engine)
        await eventually(lambda: len(books.got) >= 18, "all events")
        await until(client.subscriptions, lambda known: all(each.behind == 0 for each in known))
    async with beside(engine.client.forward("books", books)):
        await engine.client.call("till", "p1", "add", 4)
        await eventually(lambda: len(books.got) >= 19, "one more")
    assert by_name(books.got) == {**ALL, "p1": [1, 2, 3, 4]}
