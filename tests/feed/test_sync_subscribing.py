"""A plain `for` over the feed, in a thread without an event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from progressor import (
    Engine,
    FeedTruncated,
    InvalidRequest,
    Namespace,
    Process,
    StorageUnavailable,
    SubscriptionLost,
    SyncClient,
)
from progressor.client.feed.subscription import Subscription
from tests.feed.starts import FIRST

till = Namespace("till", state=int, feed=True)


@till.init
async def begin(process: Process[int], many: int) -> None:
    """Begin, with so many events."""
    process.state = 0
    for number in range(many):
        process.emit("added", total=number)


@pytest.fixture
async def engine(dsn: str) -> AsyncIterator[Engine]:
    """An engine with a process that has five events."""
    async with Engine(dsn, [till]) as engine:
        await engine.client.start("till", "t", 5)
        yield engine


def followed(dsn: str) -> list[int | None]:
    with SyncClient(dsn) as client:
        found = list(islice(client.subscribe(namespaces=["till"], after=FIRST), 3))
        rest = client.subscribe(after=found[-1].position)
        return [each.event_id for each in [*found, next(rest), next(rest)]]


async def test_in_a_for(engine: Engine, dsn: str) -> None:
    """The events of Client; a loop that ends early leaves nothing behind."""
    assert await asyncio.to_thread(followed, dsn) == [1, 2, 3, 4, 5]
    gc.collect()


def refused(dsn: str) -> None:
    with SyncClient(dsn) as client:
        with pytest.raises(InvalidRequest):
            client.subscribe(after="now")
        with pytest.raises(FeedTruncated):
            next(client.subscribe(after="1-1-1-1-1"))


async def test_errors(engine: Engine, dsn: str) -> None:
    """They are those of Client: of an argument at once, of a position in the loop."""
    await asyncio.to_thread(refused, dsn)


def closed_meanwhile(dsn: str) -> None:
    client = SyncClient(dsn)
    events = client.subscribe(after=FIRST)
    assert len(list(islice(events, 5))) == 5
    timer = threading.Timer(0.2, client.close)
    timer.start()
    with pytest.raises(StorageUnavailable):
        next(events)
    timer.join()


async def test_a_client_that_another_thread_closes(engine: Engine, dsn: str) -> None:
    """The loop that waits ends with the error of every other method."""
    await asyncio.to_thread(closed_meanwhile, dsn)


def durable(dsn: str) -> list[list[int | None]]:
    found = []
    with SyncClient(dsn) as client:
        for _ in range(2):
            with client.subscription("ledger", start="beginning") as events:
                assert (events.name, events.slices) == ("ledger", [0])
                batches = events.batches(max=2)
                batch = next(batches)
                assert (len(batch), batch[0].event_id, batch[:1]) == (2, batch[0].event_id, [batch[0]])
                assert batch.position == batch[-1].position
                batch.commit()
                found.append([each.event_id for each in batch])
                # It is not committed, and comes again.
                next(batches)
    return found


async def test_a_durable_one(engine: Engine, dsn: str) -> None:
    """A plain `with`, `for` and `commit()`: what was committed is not read again."""
    assert await asyncio.to_thread(durable, dsn) == [[1, 2], [3, 4]]
    gc.collect()


def refused_durably(dsn: str) -> None:
    with SyncClient(dsn) as client:
        with pytest.raises(InvalidRequest, match="slices must"):
            client.subscription("ledger", slices=0)
        with pytest.raises(InvalidRequest, match="inside of its"):
            next(client.subscription("ledger").batches())
        with client.subscription("ledger", start="beginning") as events:
            batch = next(events.batches())
        with pytest.raises(SubscriptionLost):
            batch.commit()


async def test_errors_of_a_durable_one(engine: Engine, dsn: str) -> None:
    """They are those of Subscription: of an argument at once, of a batch when it is committed."""
    await asyncio.to_thread(refused_durably, dsn)


def closed_while_it_reads(dsn: str, waits: threading.Event) -> list[int]:
    client = SyncClient(dsn)
    with client.subscription("ledger", lease_age=timedelta(hours=1)) as events:

        def close() -> None:
            waits.wait()
            client.close()

        closing = threading.Thread(target=close)
        closing.start()
        with pytest.raises(StorageUnavailable):
            next(events.batches())
        closing.join()
        return events.slices


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a reader has read all that there is."""
    waits, read = threading.Event(), Subscription._read

    async def reads(self: Subscription, open_: Any, most: int) -> int | None:
        reached = await read(self, open_, most)
        if not open_.has_more:
            waits.set()
        return reached

    monkeypatch.setattr(Subscription, "_read", reads)
    return waits


async def test_a_durable_one_whose_client_another_thread_closes(
    engine: Engine, dsn: str, waits: threading.Event
) -> None:
    """The wait ends with the error of every other method, and the block is left without another."""
    assert await asyncio.to_thread(closed_while_it_reads, dsn, waits) == [0]


def interrupted(dsn: str, monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """As if Ctrl-C came just when a batch was there."""
    with SyncClient(dsn) as client, client.subscription("ledger", start="beginning") as events:
        run = client.run

        def interrupts(ask: Any) -> Any:
            run(ask)
            raise KeyboardInterrupt

        monkeypatch.setattr(events, "_run", interrupts)
        with pytest.raises(KeyboardInterrupt):
            next(events.batches(max=2))
        monkeypatch.setattr(events, "_run", run)
        found = []
        for batch in islice(events.batches(max=3), 2):
            found += [each.event_id for each in batch]
            batch.commit()
        return found


async def test_ctrl_c_loses_no_batch(engine: Engine, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that came when the wait ended is the first of the next loop."""
    assert await asyncio.to_thread(interrupted, dsn, monkeypatch) == [1, 2, 3, 4, 5]


def interrupted_at_the_door(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with SyncClient(dsn) as client:
        events = client.subscription("ledger", lease_age=timedelta(hours=1))
        run, asked = client.run, []

        def interrupts(ask: Any) -> Any:
            run(ask)
            asked.append(ask)
            if len(asked) == 1:
                raise KeyboardInterrupt

        monkeypatch.setattr(events, "_run", interrupts)
        with pytest.raises(KeyboardInterrupt), events:
            pass
        with client.subscription("ledger") as others:
            assert others.slices == [0]


async def test_ctrl_c_while_it_is_entered(
    engine: Engine, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader leaves: its slices are free at once."""
    await asyncio.to_thread(interrupted_at_the_door, dsn, monkeypatch)
