"""Durable subscriptions: what was committed is not read again, nothing else is passed over."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from progressor import (
    Client,
    Engine,
    FeedBatch,
    FeedTruncated,
    InvalidRequest,
    Namespace,
    NamespaceNotFound,
    Process,
    Subscription,
    SubscriptionLost,
)
from progressor.client.feed import subscription
from tests.support import Tables, eventually

till = Namespace("till", state=int, feed=True)
SHORT = timedelta(seconds=1)
# None of several readers here is taken for dead because this process was held up.
LONG = timedelta(minutes=5)


@till.init
async def begin(process: Process[int], many: int = 1) -> None:
    """Begin, with so many events."""
    process.state = 0
    for number in range(many):
        process.emit("begun", number=number)


@till.call
async def add(process: Process[int]) -> None:
    """Add an event."""
    process.emit("added")


@till.call
async def touch(process: Process[int]) -> None:
    """Change the state alone."""
    process.state = (process.state or 0) + 1


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    """The client of an engine."""
    async with Engine(dsn, [till]) as engine:
        yield engine.client


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have readers with a long lease look for their share often."""
    monkeypatch.setattr(subscription, "_BEATS", LONG / timedelta(seconds=0.1))


async def take(batches: AsyncIterator[FeedBatch], count: int = 1) -> list[FeedBatch]:
    """The next batches."""
    async with asyncio.timeout(30):
        return [await anext(batches) for _ in range(count)]


def ids(*batches: FeedBatch) -> list[tuple[str, int | None]]:
    return [(each.process_id, each.event_id) for batch in batches for each in batch]


async def one(client: Client, name: str = "ledger", **options: Any) -> list[tuple[str, int | None]]:
    """The first batch that a new reader gets."""
    async with client.subscription(name, start="beginning", **options) as events:
        (batch,) = await take(events.batches())
        return ids(batch)


async def test_what_is_committed_is_not_read_again(client: Client) -> None:
    """A reader goes on behind the last batch that was committed; what was not committed comes again."""
    await client.start("till", "a", 5)
    async with client.subscription("ledger", start="beginning") as events:
        batches = events.batches(max=2)
        first, second = await take(batches, 2)
        assert (ids(first), ids(second)) == ([("a", 1), ("a", 2)], [("a", 3), ("a", 4)])
        assert (len(first), first[0].event_id, first[-1].position) == (2, 1, first.position)
        await first.commit()
    assert (await one(client))[0] == ("a", 3)
    async with client.subscription("ledger") as events:
        batches = events.batches(max=2)
        first, second = await take(batches, 2)
        # A later batch commits those before.
        await second.commit()
        await first.commit()
    await client.call("till", "a", "add")
    assert await one(client) == [("a", 6)]


async def test_each_subscription_has_a_place_of_its_own(client: Client) -> None:
    """And a choice of its own; a start counts for the first reader alone."""
    await client.start("till", "a", 2)
    await client.call("till", "a", "add")
    assert await one(client) == [("a", 1), ("a", 2), ("a", 3)]
    assert await one(client, "other", events=["added"]) == [("a", 3)]
    async with client.subscription("third", start="latest") as events:
        await client.call("till", "a", "add")
        (batch,) = await take(events.batches())
        assert ids(batch) == [("a", 4)]
    assert await one(client, "third") == [("a", 4)]


async def test_the_walk_is_kept_too(client: Client) -> None:
    """A reader that ends within the stored events goes on there."""
    for name in "abc":
        await client.start("till", name, 2)
    seen = []
    for _ in range(3):
        async with client.subscription("ledger", start="beginning") as events:
            (batch,) = await take(events.batches(max=2))
            seen += ids(batch)
            await batch.commit()
    assert seen == [(name, n) for name in "abc" for n in (1, 2)]


async def test_a_batch_waits_for_more(client: Client) -> None:
    """Up to `within`; a full one does not wait."""
    async with client.subscription("ledger") as events:
        full = events.batches(max=2, within=timedelta(minutes=10))
        waiting = asyncio.ensure_future(anext(full))
        await client.start("till", "a", 1)
        await client.call("till", "a", "touch")
        assert not waiting.done()
        await client.call("till", "a", "add")
        async with asyncio.timeout(30):
            assert ids(await waiting) == [("a", 1), ("a", 2)]
        soon = events.batches(max=100, within=timedelta(milliseconds=20))
        await client.call("till", "a", "add")
        assert ids(*await take(soon)) == [("a", 3)]


async def test_slices_are_shared(client: Client, tables: Tables, often: None) -> None:
    """Each reader has its share, no slice has two; all of a process goes to one of them, in order."""
    seen: list[tuple[int, str, int | None]] = []

    async def read(number: int, events: Subscription) -> None:
        async for batch in events.batches(max=3):
            seen.extend((number, *each) for each in ids(batch))
            await batch.commit()

    async with AsyncExitStack() as stack:
        readers = [client.subscription("ledger", slices=6, lease_age=LONG) for _ in range(3)]
        assert (await stack.enter_async_context(readers[0])).slices == [0, 1, 2, 3, 4, 5]
        for each in readers[1:]:
            await stack.enter_async_context(each)
        await eventually(lambda: all(len(each.slices) == 2 for each in readers), "two slices each")
        held = tables.execute("SELECT reader_id, count(*) AS many FROM subscription_slices GROUP BY 1")
        assert [row["many"] for row in held] == [2, 2, 2]
        reading = [asyncio.create_task(read(number, each)) for number, each in enumerate(readers)]
        names = [f"p{number}" for number in range(12)]
        for name in names:
            await client.start("till", name, 3)
        for name in names:
            await client.call("till", name, "add")
        await eventually(lambda: len(seen) >= 48, "all events")
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    for name in names:
        mine = [(number, n) for number, process_id, n in seen if process_id == name]
        assert [n for _, n in mine] == [1, 2, 3, 4]
        assert len({number for number, _ in mine}) == 1
    assert len({number for number, _, _ in seen}) > 1


async def test_what_a_reader_leaves_another_takes(client: Client, tables: Tables, often: None) -> None:
    """When it ends, and when it is not seen any more."""
    async with client.subscription("ledger", lease_age=LONG) as second:
        assert second.slices == [0]
        async with client.subscription("ledger", lease_age=LONG) as first:
            assert first.slices == []
            # As if its OS process had been killed long ago.
            await second._background.stop()
            tables.execute(
                "UPDATE subscription_readers SET seen_at = now() - interval '1 day' WHERE reader_id = %s",
                second._reader_id,
            )
            await eventually(lambda: first.slices == [0], "the slice of the dead")
    assert await client._node.storage.known_subscriptions("ledger")


async def test_the_loser_of_a_lease_cannot_commit(client: Client) -> None:
    """Another reader has what it did not commit; a commit of the loser changes nothing."""
    await client.start("till", "a", 3)
    async with client.subscription("ledger", start="beginning", lease_age=SHORT) as loser:
        (mine,) = await take(loser.batches())
        await loser._background.stop()
        async with client.subscription("ledger", lease_age=SHORT) as winner:
            await eventually(lambda: winner.slices == [0], "the slice")
            with pytest.raises(SubscriptionLost, match="another reader has slice 0") as caught:
                await mine.commit()
            assert caught.value.subscription == "ledger"
            (theirs,) = await take(winner.batches())
            assert ids(theirs) == ids(mine)
            await theirs.commit()
            with pytest.raises(SubscriptionLost):
                await mine.commit()
    await client.call("till", "a", "add")
    assert await one(client) == [("a", 4)]


async def test_a_rare_event_keeps_its_place(client: Client, tables: Tables) -> None:
    """The checkpoint moves over what nobody asked for: it is not lost when that is deleted."""

    def position() -> int:
        (row,) = tables.execute("SELECT position FROM subscription_slices")
        found: int = row["position"]
        return found

    async with client.subscription("rare", events=["never"], lease_age=SHORT) as events:
        waiting = asyncio.ensure_future(anext(events.batches()))
        before = position()
        for name in "abc":
            await client.start("till", name)
        await eventually(lambda: position() >= before + 3, "the checkpoint moves")
        waiting.cancel()


async def test_a_batch_that_is_not_committed_holds_the_place(client: Client, tables: Tables) -> None:
    """However often the reader is seen meanwhile."""
    await client.start("till", "a")
    async with client.subscription("ledger", start="beginning", lease_age=SHORT) as events:
        batches = events.batches()
        await take(batches)
        waiting = asyncio.ensure_future(anext(batches))
        (before,) = tables.execute("SELECT seen_at FROM subscription_readers")

        def beats() -> bool:
            (row,) = tables.execute("SELECT seen_at FROM subscription_readers")
            late: bool = row["seen_at"] - before["seen_at"] > SHORT
            return late

        await client.call("till", "a", "touch")
        await eventually(beats, "some beats")
        waiting.cancel()
    assert await one(client) == [("a", 1)]


async def test_a_removed_one_ends_its_readers(client: Client) -> None:
    """They do not make it anew by themselves."""
    async with client.subscription("ledger", lease_age=SHORT) as events:
        waiting = asyncio.ensure_future(anext(events.batches()))
        assert await client._node.storage.remove_subscription("ledger", act=None)
        with pytest.raises(SubscriptionLost, match="it was removed"):
            async with asyncio.timeout(30):
                await waiting
    assert not await client._node.storage.remove_subscription("ledger", act=None)


async def test_one_that_is_moved_goes_on_there(client: Client) -> None:
    """Its reader loses what it read, takes the slice anew, and reads from the other place."""
    await client.start("till", "a", 2)
    async with client.subscription("ledger", lease_age=SHORT) as events:
        batches = events.batches()
        await client.call("till", "a", "add")
        (batch,) = await take(batches)
        storage = client._node.storage
        assert await storage.move_subscription("ledger", (await storage.feed_head()).beginning, act=None)
        with pytest.raises(SubscriptionLost):
            await batch.commit()
        (again,) = await take(batches)
        assert ids(again) == [("a", 1), ("a", 2), ("a", 3)]
        await again.commit()
    assert not await storage.move_subscription("none", (await storage.feed_head()).beginning, act=None)


async def test_a_place_that_is_lost(client: Client, tables: Tables) -> None:
    """A reader that was away for too long is told, and operators see it."""
    async with client.subscription("ledger"):
        pass
    for name in "abc":
        await client.start("till", name)
    await client._node.storage.feed_head()
    tables.execute("DELETE FROM feed WHERE position <= 2")
    tables.execute("UPDATE feed_head SET dropped = 2")
    async with client.subscription("ledger") as events:
        with pytest.raises(FeedTruncated, match="it was deleted"):
            await take(events.batches())
    (known,) = await client._node.storage.known_subscriptions()
    assert (known.name, known.is_lost, known.behind) == ("ledger", True, 3)


async def test_a_checkpoint_that_the_feed_has_lost(client: Client, tables: Tables) -> None:
    """Another row is at its position: its reader is told what to do, operators see it, and that works."""
    await client.start("till", "a", 2)
    async with client.subscription("ledger", start="beginning") as events:
        (batch,) = await take(events.batches())
        await batch.commit()
    tables.execute("UPDATE feed SET appended_at = appended_at + interval '1 second'")
    await client.call("till", "a", "add")
    async with client.subscription("ledger") as events:
        with pytest.raises(FeedTruncated, match="progressor subscriptions move ledger beginning"):
            await take(events.batches())
    (known,) = await client.subscriptions()
    assert known.is_lost
    await client.move_subscription("ledger", "beginning")
    assert await one(client) == [("a", 1), ("a", 2), ("a", 3)]
    (known,) = await client.subscriptions()
    assert not known.is_lost


async def test_a_fail_over_that_a_beat_sees_first(client: Client, tables: Tables, often: None) -> None:
    """The slice goes on at the older checkpoint by then; the reader is told all the same."""

    def leases() -> list[Any]:
        return [row["lease"] for row in tables.execute("SELECT lease FROM subscription_slices")]

    await client.start("till", "a")
    async with client.subscription("ledger", start="beginning", lease_age=LONG) as events:
        batches = events.batches()
        (batch,) = await take(batches)
        await batch.commit()
        tables.execute("CREATE TABLE public.standby AS SELECT * FROM subscription_slices")
        await client.call("till", "a", "add")
        (batch,) = await take(batches)
        await batch.commit()
        before = leases()
        tables.execute(
            "WITH lost AS (DELETE FROM feed AS f USING feed_head AS h WHERE f.position = h.position), "
            "back AS (UPDATE feed_head SET position = position - 1) "
            "UPDATE subscription_slices AS s SET position = b.position, item = b.item, n = b.n, "
            "mark = b.mark, walk = b.walk, walk_n = b.walk_n FROM public.standby AS b"
        )
        await eventually(lambda: leases() != before and events.slices != [], "the slice again")
        with pytest.raises(FeedTruncated, match="enter it again, to go on behind its checkpoint"):
            await take(batches)
    await client.call("till", "a", "add")
    async with client.subscription("ledger", lease_age=LONG) as events:
        assert ids(*await take(events.batches())) == [("a", 3)]


async def test_a_start_that_the_feed_has_not(client: Client, tables: Tables) -> None:
    """It is refused before a subscription is made or moved: that would be stuck there."""
    await client.start("till", "a", 2)
    async with client.subscription("ledger", start="beginning") as events:
        (batch,) = await take(events.batches())
        await batch.commit()
    tables.execute("UPDATE feed SET appended_at = appended_at + interval '1 second'")
    with pytest.raises(FeedTruncated):
        async with client.subscription("other", start=batch.position):
            pass
    with pytest.raises(FeedTruncated):
        await client.move_subscription("ledger", batch.position)
    assert [each.name for each in await client.subscriptions()] == ["ledger"]


async def test_what_operators_see(client: Client) -> None:
    """Who reads it, how far it is behind, and whether it walks."""
    await client.start("till", "a")
    async with client.subscription("ledger", start="beginning", slices=2) as events:
        (known,) = await client._node.storage.known_subscriptions()
        assert (known.slices, known.is_walking, known.is_lost, known.behind) == (2, True, False, 0)
        assert (len(known.readers), known.failing_since, known.parked) == (1, None, 0)
        batches = events.batches()
        (batch,) = await take(batches)
        await batch.commit()
        await client.call("till", "a", "add")
        (known,) = await client._node.storage.known_subscriptions("ledger")
        assert known.behind == 1
        assert known.age > timedelta()


async def test_a_part_of_a_transaction_is_behind(client: Client, tables: Tables) -> None:
    """So many events are left of it as a batch has not held; once its row is deleted, they are lost."""
    async with client.subscription("ledger") as events:
        await client.start("till", "a", 3)
        (batch,) = await take(events.batches(max=2))
        await batch.commit()
        (known,) = await client.subscriptions()
        assert (known.behind, known.is_lost) == (1, False)
        assert known.age > timedelta()
    tables.execute("DELETE FROM feed")
    tables.execute("UPDATE feed_head SET dropped = position")
    async with client.subscription("ledger") as events:
        with pytest.raises(FeedTruncated, match="it was deleted"):
            await take(events.batches())
    assert [each.is_lost for each in await client.subscriptions()] == [True]


async def test_the_connections_are_cut(client: Client, dsn: str) -> None:
    """A reader goes on after an outage, and misses nothing."""
    async with client.subscription("ledger") as events:
        batches = events.batches()
        await client.start("till", "a", 2)
        (batch,) = await take(batches)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await batch.commit()
        await client.call("till", "a", "add")
        assert ids(*await take(batches)) == [("a", 3)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "name must"),
        ({"slices": 0}, "slices must be from 1 to 64"),
        ({"slices": 65}, "slices must be from 1 to 64"),
        ({"start": "now"}, "start must be latest, beginning"),
        ({"lease_age": 5}, "lease_age must be a timedelta"),
        ({"lease_age": timedelta(0)}, "lease_age must be a timedelta"),
        ({"kinds": ["no"]}, "kinds must be some of"),
        ({"namespaces": []}, "namespaces"),
    ],
)
async def test_bad_arguments(client: Client, options: dict[str, Any], said: str) -> None:
    """Each is named, before anything is made."""
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        client.subscription(**{"name": "ledger", **options})


async def test_what_does_not_fit(client: Client) -> None:
    """Another number of slices, a namespace without a feed, and sizes of batches."""
    async with client.subscription("ledger", slices=2) as events:
        with pytest.raises(InvalidRequest, match="max must be from 1"):
            await anext(events.batches(max=0))
        with pytest.raises(InvalidRequest, match="within must be"):
            await anext(events.batches(within=timedelta(days=1)))
    with pytest.raises(InvalidRequest, match="has 2 slices, not 3"):
        async with client.subscription("ledger", slices=3):
            pass
    with pytest.raises(NamespaceNotFound):
        async with client.subscription("ledger", namespaces=["tilll"]):
            pass


async def test_a_namespace_that_is_retired(client: Client, tables: Tables) -> None:
    """A subscription that names it beside others goes on with these; a new one is refused, as misspelt."""
    names = ["till", "old"]
    tables.set_namespace("old")
    async with client.subscription("ledger", namespaces=names, start="beginning"):
        pass
    tables.execute("DELETE FROM namespaces WHERE name = 'old'")
    await client.start("till", "a")
    async with client.subscription("ledger", namespaces=names) as events:
        assert ids(*await take(events.batches())) == [("a", 1)]
    with pytest.raises(NamespaceNotFound):
        async with client.subscription("other", namespaces=names):
            pass


async def test_a_reader_is_entered_once_at_a_time(client: Client, tables: Tables, often: None) -> None:
    """Another entering is refused, also while the first is under way; once left, it holds nothing."""
    reader = client.subscription("ledger", lease_age=LONG)
    entering = [asyncio.ensure_future(reader.__aenter__()) for _ in range(2)]
    entered, refused = await asyncio.gather(*entering, return_exceptions=True)
    assert entered is reader
    assert isinstance(refused, InvalidRequest)
    with pytest.raises(InvalidRequest, match="entered already"):
        async with reader:
            pass
    assert reader.slices == [0]
    await reader.__aexit__(None, None, None)
    assert tables.execute("SELECT reader_id FROM subscription_readers") == []
    async with reader:
        assert reader.slices == [0]


async def test_a_pattern_that_no_namespace_fits_is_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be misspelt: nothing came of it, and nothing said why. One may still come that it fits."""
    text = "no namespace fits this subscription yet"
    async with client.subscription("fits", namespaces=["till*"]):
        assert text not in caplog.text
    async with client.subscription("misspelt", namespaces=["tll*", "bill*"]):
        (line,) = [each.message for each in caplog.records if text in each.message]
    assert line == f"{text} subscription=misspelt namespaces='tll*, bill*'"
