"""A reader that begins at the beginning gets what is stored, then what comes: each event once, in order."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from progressor import (
    Client,
    Engine,
    FeedEvent,
    FeedKind,
    FeedTruncated,
    HandlerFailed,
    InvalidRequest,
    Namespace,
    Process,
)
from progressor.storage.feed.places import FeedPlace
from progressor.storage.feed.reading import FeedEntry, FeedFilter, FeedPart, Slice
from progressor.storage.postgres.arrays import texts
from tests.feed.starts import first_look
from tests.support import Tables

till = Namespace("shop.till", state=int, feed=True)
quiet = Namespace("shop.quiet", state=int)
ALL: tuple[FeedKind, ...] = ("event", "created", "step", "broken", "repaired", "removed")
EVENTS = FeedFilter(["e"])
WHOLE = Slice()


@till.init
@quiet.init
async def begin(process: Process[int], many: int = 0) -> None:
    """Begin, with so many events."""
    process.state = 0
    for _ in range(many):
        process.emit("begun")


@till.call
async def add(process: Process[int], many: int) -> None:
    """Add so many events."""
    for number in range(many):
        process.emit("added", number=number)


@till.call
async def fail(process: Process[int]) -> None:
    """Break."""
    raise ValueError("no")


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


def told(events: Sequence[FeedEvent]) -> list[Any]:
    return [(each.process_id, each.kind, each.event_id) for each in events]


async def test_stored_first_then_what_comes(client: Client) -> None:
    """One process after the other, as it is: that it was created, its events, that it is broken."""
    await client.start("shop.till", "a", 2)
    await client.start("shop.till", "b", 1)
    await client.start("shop.quiet", "q", 3)
    await client.call("shop.till", "a", "add", 1)
    with pytest.raises(HandlerFailed):
        await client.call("shop.till", "b", "fail")
    reader = client.subscribe(kinds=ALL, after="beginning")
    found = await take(7, reader)
    assert told(found) == [
        ("a", "created", None),
        ("a", "event", 1),
        ("a", "event", 2),
        ("a", "event", 3),
        ("b", "created", None),
        ("b", "event", 1),
        ("b", "broken", None),
    ]
    assert found[3].payload == {"number": 0}
    assert found[0].timestamp < found[1].timestamp
    await client.call("shop.till", "a", "add", 1)
    assert told(await take(2, reader)) == [("a", "event", 4), ("a", "step", None)]


async def test_an_init_that_has_not_succeeded(dsn: str) -> None:
    """Its process is created once it has; before that the walk does not tell so."""
    slow = Namespace("shop.slow", feed=True)
    goes_on = asyncio.Event()

    @slow.init
    async def begin(process: Process[Any], waits: bool) -> None:
        if waits:
            await goes_on.wait()
        elif not goes_on.is_set():
            raise ValueError("no")

    async with Engine(dsn, [slow]) as engine:
        client = engine.client
        await client.submit_start("shop.slow", "runs", True)
        with pytest.raises(HandlerFailed):
            await client.start("shop.slow", "failed", False)
        reader = client.subscribe(kinds=ALL, after="beginning")
        assert told(await take(1, reader)) == [("failed", "broken", None)]
        goes_on.set()
        await client.get("shop.slow", "runs")
        assert told(await take(1, reader)) == [("runs", "created", None)]
        await client.simple_repair("shop.slow", "failed")
        assert told(await take(2, reader)) == [("failed", "repaired", None), ("failed", "created", None)]


async def test_going_on_behind_each(client: Client) -> None:
    """From every position in the walk a reader finds exactly what comes behind it."""
    for name in "abc":
        await client.start("shop.till", name, 3)
    found = await take(12, client.subscribe(kinds=ALL, after="beginning"))
    await client.call("shop.till", "b", "add", 1)
    end = told(await take(2, client.subscribe(kinds=ALL, after=found[-1].position)))
    assert end == [("b", "event", 4), ("b", "step", None)]
    for place, each in enumerate(found):
        if place < 8:
            # The walk has yet to tell all of b.
            wanted = [*told(found[place + 1 : 8]), end[0], *told(found[max(8, place + 1) :])]
        else:
            wanted = end + told(found[place + 1 :])
        reader = client.subscribe(kinds=ALL, after=each.position)
        assert told(await take(len(wanted), reader)) == wanted


async def test_filters_hold_in_the_walk(client: Client) -> None:
    """Names of events and patterns of namespaces; a namespace without a feed is no part of it."""
    await client.start("shop.till", "a", 2)
    await client.call("shop.till", "a", "add", 2)
    added = client.subscribe(namespaces="shop.*", events="added", after="beginning")
    assert told(await take(2, added)) == [("a", "event", 3), ("a", "event", 4)]


async def test_what_the_retention_deleted(client: Client, tables: Tables) -> None:
    """It is not told: the walk tells what there is."""
    await client.start("shop.till", "a", 5)
    tables.execute("DELETE FROM events WHERE event_id < 4")
    tables.execute("UPDATE processes SET first_event_id = 4")
    assert told(await take(2, client.subscribe(after="beginning"))) == [
        ("a", "event", 4),
        ("a", "event", 5),
    ]


async def all_behind(
    engine: Engine, place: FeedPlace, *, limit: int, slice_: Slice = WHOLE
) -> AsyncIterator[FeedPart]:
    """The parts of reads until there is no more."""
    while True:
        part = await engine.node.storage.read_feed(EVENTS, place, limit=limit, slice_=slice_)
        yield part
        place = part.place
        if not part.has_more and place.walk is None:
            return


@pytest.mark.parametrize("seed", range(6))
async def test_each_once_whatever_happens_meanwhile(dsn: str, tables: Tables, seed: int) -> None:
    """Steps, new processes and removals between any two reads: every event once, in order by process."""
    rand = random.Random(seed)
    seen: dict[int, list[int]] = defaultdict(list)
    async with Engine(dsn, [till]) as engine:
        client, storage = engine.client, engine.node.storage
        live, made = [], 0

        async def change() -> None:
            nonlocal made
            choice = rand.random()
            if choice < 0.3 or not live:
                made += 1
                live.append(f"p{made}")
                await client.start("shop.till", live[-1], rand.randint(0, 4))
            elif choice < 0.8:
                await client.call("shop.till", rand.choice(live), "add", rand.randint(1, 3))
            else:
                await client.call("shop.till", live.pop(rand.randrange(len(live))), "leave")

        for _ in range(20):
            await change()
        there = {
            row["process_no"] for row in tables.execute("SELECT process_no, last_event_id FROM processes")
        }
        highest = max(there, default=0)
        place = (await storage.feed_head()).beginning
        for _ in range(60):
            for _ in range(rand.randint(0, 2)):
                await change()
            part = await storage.read_feed(EVENTS, place, limit=rand.randint(1, 5))
            note(seen, part.entries)
            place = part.place
        async for part in all_behind(engine, place, limit=5):
            note(seen, part.entries)
        for row in tables.execute("SELECT process_no, last_event_id FROM processes"):
            assert seen.pop(row["process_no"], []) == list(range(1, row["last_event_id"] + 1))
        # Those that were removed meanwhile are told to their end.
        for process_no, ids in seen.items():
            assert process_no in there or process_no > highest
            assert ids == list(range(1, len(ids) + 1))


def note(seen: dict[int, list[int]], entries: Sequence[FeedEntry]) -> None:
    for entry in entries:
        seen[entry.process_no].append(entry.n)


async def test_each_is_in_one_slice(dsn: str) -> None:
    """Slices part the processes: in the walk, and behind it."""
    async with Engine(dsn, [till]) as engine:
        for number in range(20):
            await engine.client.start("shop.till", f"p{number}", 2)
        head = await engine.node.storage.feed_head()
        for place in (head.beginning, head.first_place):
            found: list[tuple[str, int]] = []
            for number in range(5):
                parts = all_behind(engine, place, limit=7, slice_=Slice(number, 5))
                mine = [entry async for part in parts for entry in part.entries]
                assert 0 < len({each.process_id for each in mine}) < 20
                found += [(each.process_id, each.n) for each in mine]
            assert sorted(found) == sorted((f"p{number}", n) for number in range(20) for n in (1, 2))


async def test_what_is_committed_and_has_no_position(dsn: str, tables: Tables) -> None:
    """It is told by the feed alone, not by the walk too, though this sees it."""
    async with Engine(dsn, [till]) as engine:
        await engine.client.start("shop.till", "a", 2)
        storage = engine.node.storage
        place = (await storage.feed_head()).beginning
        await engine.client.call("shop.till", "a", "add", 2)
        # As if it were committed between the numbering and the walk.
        rows = await storage._rows("walk_feed", **walk_params(place, limit=100))
        assert [row["n"] for row in rows] == [1, 2]
        assert rows[0]["is_last"]


async def test_from_a_moment(client: Client, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was saved from then on; a moment whose rows are deleted is refused, and one without a zone."""
    moments = []
    for number in range(5):
        moments.append(datetime.now(UTC))
        await client.start("shop.till", f"p{number}", 1)
    for number, moment in enumerate(moments):
        (found,) = await take(1, client.subscribe(after=moment))
        assert found.process_id == f"p{number}"
    # One that is yet to come is the end of the feed when the loop begins to wait.
    has_looked = first_look(client, monkeypatch)
    later = client.subscribe(after=datetime.now(UTC) + timedelta(days=1))
    waiting = asyncio.ensure_future(take(1, later))
    await has_looked()
    await client.start("shop.till", "last", 1)
    assert [each.process_id for each in await waiting] == ["last"]
    tables.execute("DELETE FROM feed WHERE position <= 2")
    tables.execute("UPDATE feed_head SET dropped = 2")
    with pytest.raises(FeedTruncated, match="deleted in part"):
        await take(1, client.subscribe(after=moments[0]))
    (found,) = await take(1, client.subscribe(after=moments[3]))
    assert found.process_id == "p3"
    with pytest.raises(InvalidRequest, match="aware datetime"):
        client.subscribe(after=datetime(2026, 1, 1))


async def test_a_moment_behind_a_quiet_week(client: Client, tables: Tables) -> None:
    """What came before the quiet is deleted; what is saved from the moment on is all there, and told."""
    storage = client._node.storage
    for name in ("old", "older"):
        await client.start("shop.till", name, 1)
    tables.execute("UPDATE feed SET appended_at = appended_at - interval '8 days'")
    for name in ("new", "newer"):
        await client.start("shop.till", name, 1)
        while await storage.drop_leftovers(limit=1):
            pass
    assert (await storage.feed_head()).dropped == 1
    events = client.subscribe(after=datetime.now(UTC) - timedelta(days=1))
    assert [each.process_id for each in await take(2, events)] == ["new", "newer"]
    with pytest.raises(FeedTruncated, match="deleted in part"):
        await take(1, client.subscribe(after=datetime.now(UTC) - timedelta(days=9)))


async def test_a_moment_among_rows_that_came_late(dsn: str, client: Client, tables: Tables) -> None:
    """What was saved before it, and committed after others, hides none of these."""
    for number in range(20):
        await client.start("shop.till", f"p{number}", 1)
    storage = client._node.storage
    await storage.feed_head()
    times = [row["appended_at"] for row in tables.execute("SELECT appended_at FROM feed ORDER BY position")]
    for late in range(2, 20):
        moment = times[1] + (times[2] - times[1]) / 2
        tables.execute("UPDATE feed SET appended_at = %s WHERE position = %s", times[0], late + 1)
        place = await storage.feed_place_at(moment)
        assert place is not None
        assert place.position == (2 if late > 2 else 3)
        tables.execute("UPDATE feed SET appended_at = %s WHERE position = %s", times[late], late + 1)


@pytest.mark.parametrize("limit", [2, 4, 100])
async def test_a_walk_goes_on_while_much_comes(dsn: str, limit: int) -> None:
    """A read that finds something in the feed walks on too, as far as there is room, and says so."""
    async with Engine(dsn, [till]) as engine:
        client, storage = engine.client, engine.node.storage
        for name in "abcd":
            await client.start("shop.till", name, 3)
        part = await storage.read_feed(EVENTS, (await storage.feed_head()).beginning, limit=3)
        seen, many = [(each.process_id, each.n) for each in part.entries], 3
        while part.place.walk is not None:
            await client.call("shop.till", "a", "add", 1)
            many += 1
            part = await storage.read_feed(EVENTS, part.place, limit=limit)
            assert (len(part.entries) <= limit, part.has_more) == (True, True)
            seen += [(each.process_id, each.n) for each in part.entries]
            assert many < 15
        wanted = [(name, n) for name in "bcd" for n in range(1, 4)]
        assert [each for each in seen if each[0] != "a"] == wanted
        assert [n for name, n in seen if name == "a"] == list(range(1, many + 1))


@pytest.mark.parametrize("limit", [3, 4])
async def test_a_removal_that_has_no_position(dsn: str, limit: int) -> None:
    """The walk does not pass a process that is gone: the feed will tell what is not told of it."""
    async with Engine(dsn, [till]) as engine:
        client, storage = engine.client, engine.node.storage
        for name, many in {"a": 3, "b": 5, "c": 3}.items():
            await client.start("shop.till", name, many)
        # Of b nothing is read, or a part.
        part = await storage.read_feed(EVENTS, (await storage.feed_head()).beginning, limit=limit)
        seen = part.entries
        await client.call("shop.till", "b", "leave")
        # As if it were committed between the numbering and the walk.
        rows = await storage._rows("walk_feed", **walk_params(part.place, limit=limit))
        assert (rows[0]["is_last"], rows[0]["process_no"]) == (False, None)
        place = part.place._replace(walk=rows[0]["next_no"], walk_n=rows[0]["next_n"])
        async for part in all_behind(engine, place, limit=100):
            seen += part.entries
        found = defaultdict(list)
        for each in seen:
            found[each.process_id].append(each.n)
        assert found == {"a": [1, 2, 3], "b": [1, 2, 3, 4, 5, 6], "c": [1, 2, 3]}


def walk_params(place: FeedPlace, *, limit: int) -> dict[str, Any]:
    return {
        **place._asdict(), "letters": texts(["e"]), "namespaces": None, "names": None,
        "slice": 0, "slices": 1, "window": 100, "limit": limit, "bytes": 10**6,
    }  # fmt: skip
