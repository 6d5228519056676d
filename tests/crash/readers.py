"""Readers of the feed as OS processes that are frozen or die: what they do until then.

Rule: a reader notes each event in a transaction of its own before it commits the batch, and the batch
afterwards: what was noted and not committed comes again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from typing import LiteralString

import psycopg

from progressor import (
    App,
    Client,
    Engine,
    FeedEvent,
    Namespace,
    Process,
    Projection,
    Subscription,
    SubscriptionLost,
)
from progressor.deployment.standalone import Standalone, zombie_collector_apart
from tests.crash import points
from tests.crash.ledger import CLIENT_OPTIONS, OPTIONS

# Long enough for a reader that lives on a busy machine.
SHORT = timedelta(seconds=3)
NAMES = ("a", "b", "c", "d", "e")
TABLES = """
CREATE TABLE public.noted (at bigserial, reader text, account text, n bigint);
CREATE TABLE public.committed (at bigserial, reader text, account text, n bigint);
CREATE TABLE public.lost (at bigserial, reader text);
CREATE TABLE public.projected (account text PRIMARY KEY, total bigint, numbers bigint[]);
"""
_NOTE: LiteralString = """
INSERT INTO noted (reader, account, n) SELECT %s, unnest(%s::text[]), unnest(%s::bigint[])
"""
_NOTE_COMMITTED: LiteralString = """
INSERT INTO committed (reader, account, n) SELECT %s, unnest(%s::text[]), unnest(%s::bigint[])
"""
_PROJECT = """
INSERT INTO projected AS p VALUES (%s, %s, ARRAY[%s::bigint]) ON CONFLICT (account) DO UPDATE
SET total = p.total + excluded.total, numbers = p.numbers || excluded.numbers
"""


def till() -> Namespace:
    """The namespace whose events are read."""
    ns = Namespace("till", state=int, feed=True)

    @ns.init
    async def begin(process: Process[int]) -> None:
        process.state = 0

    @ns.call
    async def add(process: Process[int], amount: int) -> None:
        process.emit("added", amount=amount)

    return ns


def projected() -> Projection:
    """Sums and numbers of events by account, in the order in which they came."""
    projection = Projection("projected")

    @projection.on("till", "added")
    async def added(event: FeedEvent, connection: psycopg.AsyncConnection) -> None:
        await connection.execute(_PROJECT, (event.process_id, event.payload["amount"], event.event_id))

    @projection.clear
    async def clear(connection: psycopg.AsyncConnection) -> None:
        await connection.execute("DELETE FROM projected")

    return projection


def app() -> App:
    """The namespace with its projection."""
    return App([till()], projections=[projected()])


def ledger(client: Client, *, lease_age: timedelta = SHORT, slices: int | None = None) -> Subscription:
    """A reader of the durable subscription that is shared."""
    return client.subscription("ledger", start="beginning", lease_age=lease_age, slices=slices)


async def read(dsn: str, reader: str, events: Subscription, *, freezes: bool = False) -> None:
    """Note each batch, and commit it; `freezes`: the first time, stop in between."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as own:
        async for batch in events.batches(max=2):
            rows = (reader, [each.process_id for each in batch], [each.event_id for each in batch])
            await own.execute(_NOTE, rows)
            if freezes:
                freezes = False
                os.kill(os.getpid(), signal.SIGSTOP)
            try:
                await batch.commit()
            except SubscriptionLost:
                await own.execute("INSERT INTO lost (reader) VALUES (%s)", [reader])
            else:
                await own.execute(_NOTE_COMMITTED, rows)


def run(role: str, point: str | None, nth: int, dsn: str) -> None:
    """Play a role; die where it comes to this point for the `nth` time."""
    asyncio.run(_play(role, point, nth, dsn))


async def _play(role: str, point: str | None, nth: int, dsn: str) -> None:
    if point is not None:
        points.arm(point, nth=nth)
    match role:
        case "reader":
            # So that all it commits is batches.
            rarely = timedelta(hours=1)
            async with Client(dsn, **CLIENT_OPTIONS) as client, ledger(client, lease_age=rarely) as events:
                await read(dsn, role, events)
        case "frozen reader":
            async with Client(dsn, **CLIENT_OPTIONS) as client, ledger(client) as events:
                await read(dsn, role, events, freezes=True)
        case "tail":
            async with Client(dsn, **CLIENT_OPTIONS) as client:
                async for _ in client.subscribe(after="beginning"):
                    pass
        case "projecting engine":
            async with Engine(dsn, app(), zombie_collector=False, **OPTIONS):
                await asyncio.Event().wait()
        case "collector":
            async with Standalone(dsn, zombie_collector_apart, **OPTIONS):
                await asyncio.Event().wait()
