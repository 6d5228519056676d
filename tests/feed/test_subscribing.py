"""Readers of a feed get what they asked for, in order, each once, from wherever they go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, LiteralString

import psycopg
import pytest

from progressor import (
    Client,
    Engine,
    FeedEvent,
    FeedKind,
    FeedTruncated,
    Namespace,
    NamespaceNotFound,
    Process,
)
from progressor.errors import InvalidRequest
from tests.feed.starts import FIRST, first_look

till = Namespace("shop.till", state=int, feed=True)
quiet = Namespace("shop.quiet", state=int)
_APPEND: LiteralString = """
INSERT INTO progressor.feed (
    appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids, event_counts
)
"""
ALL: tuple[FeedKind, ...] = ("event", "created", "step", "broken", "repaired", "removed")


@till.init
@quiet.init
async def begin(process: Process[int]) -> None:
    """Begin at nothing."""
    process.state = 0


@till.call
async def add(process: Process[int], times: int) -> None:
    """Add one so many times, with an event for each and one for all."""
    for _ in range(times):
        process.state = (process.state or 0) + 1
        process.emit("added", total=process.state)
    process.emit("counted")


@till.call
async def leave(process: Process[int]) -> None:
    """Go, with a last event."""
    process.emit("left")
    process.remove()


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    """The client of an engine with both namespaces."""
    async with Engine(dsn, [till, quiet]) as engine:
        yield engine.client


async def take(count: int, events: AsyncIterator[FeedEvent]) -> list[FeedEvent]:
    """The next so many."""
    async with asyncio.timeout(30):
        return [await anext(events) for _ in range(count)]


def told(events: list[FeedEvent]) -> list[Any]:
    return [(each.process_id, each.kind, each.event_id, each.name) for each in events]


async def test_all_of_a_life(client: Client) -> None:
    """Each event and each change, those of one step in their order; a removed process tells its last."""
    await client.start("shop.till", "t-1")
    await client.call("shop.till", "t-1", "add", 2)
    await client.call("shop.till", "t-1", "leave")
    found = await take(7, client.subscribe(kinds=ALL, after=FIRST))
    assert told(found) == [
        ("t-1", "created", None, None),
        ("t-1", "event", 1, "added"),
        ("t-1", "event", 2, "added"),
        ("t-1", "event", 3, "counted"),
        ("t-1", "step", None, None),
        ("t-1", "event", 4, "left"),
        ("t-1", "removed", None, None),
    ]
    first = found[1]
    assert (first.namespace, first.payload, first.metadata) == (
        "shop.till",
        {"total": 1},
        {"name": "added"},
    )
    assert first.task_id is not None
    assert len({each.position for each in found}) == 7


async def test_going_on_behind_each(client: Client) -> None:
    """From every position a reader finds exactly what comes behind it, in the middle of a step too."""
    await client.start("shop.till", "t-1")
    await client.call("shop.till", "t-1", "add", 3)
    await client.call("shop.till", "t-1", "leave")
    found = await take(8, client.subscribe(kinds=ALL, after=FIRST))
    for place, each in enumerate(found[:-1]):
        rest = client.subscribe(kinds=ALL, after=each.position)
        assert await take(7 - place, rest) == found[place + 1 :]


async def test_what_is_asked_for(client: Client) -> None:
    """By the name of the namespace or a pattern, by kind, by the name of the event."""
    await client.start("shop.till", "t-1")
    await client.call("shop.till", "t-1", "add", 1)
    by_name = client.subscribe(namespaces=["shop.*"], events=["counted"], after=FIRST)
    assert told(await take(1, by_name)) == [("t-1", "event", 2, "counted")]
    by_kind = client.subscribe(namespaces=["shop.till"], kinds=["created"], after=FIRST)
    assert told(await take(1, by_kind)) == [("t-1", "created", None, None)]


async def test_a_tail(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the latest on nothing that was before; events come as they are committed, each once."""
    await client.start("shop.till", "t-0")
    tail, has_looked = client.subscribe(events=["added"]), first_look(client, monkeypatch)
    first = asyncio.ensure_future(take(1, tail))
    await has_looked()
    names = [f"t-{number}" for number in range(20)]
    await asyncio.gather(*(client.start("shop.till", name) for name in names[1:]))
    await asyncio.gather(*(client.call("shop.till", name, "add", 1) for name in names for _ in range(10)))
    found = [*await first, *await take(199, tail)]
    for name in names:
        assert [each.event_id for each in found if each.process_id == name] == list(range(1, 20, 2))


async def test_many_who_number_at_once(client: Client, dsn: str) -> None:
    """Positions are dense and each is given once, whoever reads; all readers see the same."""
    readers = [client.subscribe(after=FIRST) for _ in range(6)]
    names = [f"t-{number}" for number in range(30)]
    await asyncio.gather(*(client.start("shop.till", name) for name in names))
    calls = asyncio.gather(*(client.call("shop.till", name, "add", 1) for name in names for _ in range(10)))
    seen = await asyncio.gather(*(take(600, reader) for reader in readers))
    await calls
    assert all(each == seen[0] for each in seen)
    with psycopg.connect(dsn) as connection:
        ((count, last, unnumbered),) = connection.execute(
            "SELECT count(position), max(position), count(*) FILTER (WHERE position IS NULL) "
            "FROM progressor.feed"
        ).fetchall()
    assert (count, unnumbered) == (last, 0)


async def test_a_commit_that_comes_late(client: Client, dsn: str) -> None:
    """A row that was appended first and is committed last is read last, and not skipped."""
    await client.start("shop.till", "t-1")
    reader = client.subscribe(kinds=["created", "step"], after=FIRST)
    assert told(await take(1, reader)) == [("t-1", "created", None, None)]
    async with await psycopg.AsyncConnection.connect(dsn) as late:
        await late.execute(
            f"{_APPEND} VALUES (now(), 'shop.till', 's', '{{99}}', '{{late}}', '{{1}}', '{{0}}', '{{0}}')"
        )
        await client.call("shop.till", "t-1", "add", 1)
        assert told(await take(1, reader)) == [("t-1", "step", None, None)]
    assert told(await take(1, reader)) == [("late", "step", None, None)]


async def test_a_filter_that_fits_little(client: Client, dsn: str) -> None:
    """What is far behind is found, over windows in which nothing fits."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"{_APPEND} SELECT now(), 'other', 's', '{{99}}', '{{x}}', '{{1}}', '{{0}}', '{{0}}' "
            "FROM generate_series(1, 3500)"
        )
    await client.start("shop.till", "t-1")
    reader = client.subscribe(namespaces=["shop.till"], kinds=["created"], after=FIRST)
    assert told(await take(1, reader)) == [("t-1", "created", None, None)]


async def test_large_payloads(client: Client) -> None:
    """A step of more events than one read takes, and of more bytes, comes whole and in order."""
    await client.start("shop.till", "t-1")
    await client.call("shop.till", "t-1", "add", 2500)
    found = await take(2501, client.subscribe(after=FIRST))
    assert [each.event_id for each in found] == list(range(1, 2502))


async def test_what_was_deleted(client: Client, dsn: str) -> None:
    """An event without its row is told as deleted; so it is with its name unknown."""
    await client.start("shop.till", "t-1")
    await client.call("shop.till", "t-1", "add", 2)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM progressor.events WHERE event_id = 1")
    found = await take(2, client.subscribe(events=["added"], after=FIRST))
    assert [(each.event_id, each.is_deleted, each.payload) for each in found] == [
        (1, True, None),
        (2, False, {"total": 2}),
    ]


async def test_a_position_that_is_gone(client: Client, dsn: str) -> None:
    """Deleted rows and another database are an error, not a gap; the newest row stays."""
    await client.start("shop.till", "t-1")
    for _ in range(3):
        await client.call("shop.till", "t-1", "add", 1)
    found = await take(6, client.subscribe(after=FIRST))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE progressor.feed SET appended_at = now() - interval '8 days' "
            "WHERE position < (SELECT f.position FROM progressor.feed_head AS f)"
        )
    storage = client._node.storage
    await storage.drop_leftovers()
    with pytest.raises(FeedTruncated) as caught:
        await take(1, client.subscribe(after=found[0].position))
    assert caught.value.position == found[0].position
    tail = client.subscribe(after=found[-1].position)
    await client.call("shop.till", "t-1", "add", 1)
    assert told(await take(1, tail)) == [("t-1", "event", 7, "added")]
    epoch, rest = found[-1].position.split("-", 1)
    with pytest.raises(FeedTruncated):
        await take(1, client.subscribe(after=f"{int(epoch, 16) ^ 1:x}-{rest}"))


@pytest.mark.parametrize(
    "after", ["", "now", "1-2-3-4", "1-2-3-4-x", "x-1-1-1-1", "1-1-1-1-9999999999999999999"]
)
def test_what_is_no_position(after: str) -> None:
    """It is refused before anything is asked of the database."""
    with pytest.raises(InvalidRequest) as caught:
        Client("postgresql://nowhere/x").subscribe(after=after)
    assert caught.value.field == "after"


@pytest.mark.parametrize(
    ("field", "choice"),
    [
        ("kinds", ["evnt"]),
        ("kinds", []),
        ("namespaces", []),
        ("namespaces", [""]),
        ("events", [""]),
        ("events", []),
    ],
)
def test_what_cannot_be_chosen(field: str, choice: list[str]) -> None:
    """The error names the field."""
    chosen: dict[str, Any] = {field: choice}
    with pytest.raises(InvalidRequest) as caught:
        Client("postgresql://nowhere/x").subscribe(**chosen)
    assert caught.value.field == field


async def test_a_namespace_without_a_feed(client: Client) -> None:
    """Who subscribes to it is told so; and who subscribes to one that nobody knows."""
    with pytest.raises(InvalidRequest, match="feed=True"):
        await take(1, client.subscribe(namespaces=["shop.quiet"]))
    with pytest.raises(NamespaceNotFound):
        await take(1, client.subscribe(namespaces=["shop.tills"]))
