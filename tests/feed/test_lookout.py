"""Readers that wait cost one look together, which finds what nobody has hinted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from progressor import Client, Engine, FeedEvent, FeedTruncated, Namespace, Process
from progressor.client.feed import looks
from progressor.client.feed.slices import end_of
from progressor.errors import StorageUnavailable
from tests.support import Tables, eventually

till = Namespace("till", state=int, feed=True)


@till.init
async def begin(process: Process[int]) -> None:
    """Begin with nothing."""


@pytest.fixture(autouse=True)
def no_looks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that have read all look again in an hour."""
    monkeypatch.setattr(looks, "_SHORTEST_PAUSE", 3600.0)
    monkeypatch.setattr(looks, "_LONGEST_PAUSE", 3600.0)


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    """A client that gets no hints."""
    async with Engine(dsn, [till], signals=False) as engine:
        yield engine.client


class Counted:
    """The operations of readers on one client, counted."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.looks = 0
        storage = client._node.storage
        read, look = storage.read_feed, storage.feed_head

        async def counted_read(*args: Any, **kwargs: Any) -> Any:
            self.reads += 1
            return await read(*args, **kwargs)

        async def counted_look() -> Any:
            head = await look()
            self.looks += 1
            return head

        monkeypatch.setattr(storage, "read_feed", counted_read)
        monkeypatch.setattr(storage, "feed_head", counted_look)

    async def some_looks(self) -> None:
        """Wait for what the lookout sees when all readers wait."""
        until = self.looks + 3
        await eventually(lambda: self.looks >= until, "looks of the lookout")


def append(tables: Tables, process_id: str) -> None:
    """Append a row of which there is no hint."""
    tables.execute(
        "INSERT INTO progressor.feed "
        "(appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids, event_counts) "
        "VALUES (now(), 'till', 's', '{99}', ARRAY[%s], '{1}', '{0}', '{0}')",
        process_id,
    )


async def first(client: Client) -> FeedEvent:
    return await anext(client.subscribe(kinds=["step"]))


async def first_of(client: Client, name: str) -> FeedEvent:
    async with client.subscription(name, kinds=["step"]) as events:
        async for batch in events.batches():
            return batch[0]
    raise AssertionError


async def waiting(client: Client, counted: Counted) -> list[asyncio.Task[FeedEvent]]:
    """Six readers, all of which wait."""
    readers = [
        *(asyncio.ensure_future(first(client)) for _ in range(3)),
        *(asyncio.ensure_future(first_of(client, f"ledger {number}")) for number in range(3)),
    ]
    await eventually(lambda: len(client._node.lookout._ends) == 6, "six readers that wait")
    await counted.some_looks()
    return readers


async def test_what_nobody_has_hinted(
    client: Client, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes to all readers. While nothing comes none of them reads."""
    counted = Counted(client, monkeypatch)
    readers = await waiting(client, counted)
    assert counted.reads == 6
    append(tables, "a")
    async with asyncio.timeout(30):
        assert {event.process_id for event in await asyncio.gather(*readers)} == {"a"}
    assert counted.reads == 12


async def test_what_the_database_has_lost(
    client: Client, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed ends earlier than it was read: that comes to all readers too."""
    append(tables, "a")
    readers = await waiting(client, Counted(client, monkeypatch))
    tables.execute("DELETE FROM progressor.feed")
    tables.execute("UPDATE progressor.feed_head SET position = 0, dropped = 0")
    async with asyncio.timeout(30):
        ends = await asyncio.gather(*readers, return_exceptions=True)
    assert {type(end) for end in ends} == {FeedTruncated}


async def test_nobody_waits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody looks."""
    counted = Counted(client, monkeypatch)
    for reader in await waiting(client, counted):
        reader.cancel()
        await asyncio.wait((reader,))
    lookout = client._node.lookout
    await eventually(lambda: not lookout._something.is_set(), "a lookout that rests")
    assert lookout._ends == {}


async def test_a_slice_that_was_read_less_far(
    client: Client, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read on, though another one is read to the end; one that is held up may go on at any moment."""
    append(tables, "a")
    async with client.subscription("ledger", slices=2) as events:
        reading = asyncio.ensure_future(anext(events.batches()))
        await eventually(lambda: client._node.lookout._ends, "a reader that waits")
        one, other = events.open_slices
        assert end_of(events.open_slices) == one.place.position == other.place.position == 1
        one.place = one.place._replace(position=0)
        assert end_of(events.open_slices) == 0
        one.is_stuck = True
        assert end_of(events.open_slices) is None
        reading.cancel()
        await asyncio.wait((reading,))


async def test_a_client_that_is_closed(dsn: str, client: Client) -> None:
    """Its readers end, however long they would wait."""
    other = Client(dsn, signals=False)
    reader = asyncio.ensure_future(first(other))
    await eventually(lambda: other._node.lookout._ends, "a reader that waits")
    await other.close()
    async with asyncio.timeout(30):
        with pytest.raises(StorageUnavailable):
            await reader
