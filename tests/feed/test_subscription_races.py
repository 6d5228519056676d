"""Races of durable readers: lost slices, readers that stop and come back, ends at any moment.

Rule: whatever happens to readers, each event is committed once it was delivered, and never passed over.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import psycopg
import pytest

from progressor import (
    Client,
    Engine,
    FeedBatch,
    FeedEvent,
    InvalidRequest,
    Namespace,
    Process,
    Subscription,
    SubscriptionLost,
)
from progressor.client.feed.events import EventReader
from progressor.client.feed.looks import Looks
from progressor.client.feed.slices import OpenSlice, Taken
from progressor.storage.admin.subscriptions import Parked, Subscriptions
from progressor.storage.feed.reading import FeedEntry
from tests.feed.starts import FIRST
from tests.support import LossyConnections, Tables, eventually

till = Namespace("till", state=int, feed=True)
LONG = timedelta(hours=1)
SHORT = timedelta(seconds=1)


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


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    """The client of an engine."""
    async with Engine(dsn, [till]) as engine:
        yield engine.client


async def take(batches: AsyncIterator[FeedBatch]) -> FeedBatch:
    """The next batch."""
    async with asyncio.timeout(30):
        return await anext(batches)


def ids(*batches: FeedBatch) -> list[tuple[str, int | None]]:
    return [(each.process_id, each.event_id) for batch in batches for each in batch]


async def test_a_loop_goes_on_after_a_lost_slice(client: Client) -> None:
    """A reader that has lost its slice, with more in memory, lets others run, and reads on once it can."""
    await client.start("till", "a", 6)
    async with client.subscription("ledger", start="beginning", lease_age=SHORT) as events:
        batches = events.batches(max=1)
        await take(batches)
        second = await take(batches)
        storage = client._node.storage
        beginning = (await storage.feed_head()).beginning
        # Of another limit, so that more waits in memory than a batch has.
        (open_,) = events._flowing
        open_.entries *= 3
        assert await storage.move_subscription("ledger", beginning, act=None)
        with pytest.raises(SubscriptionLost):
            await second.commit()
        assert ids(await take(batches)) == [("a", 1)]


async def test_a_reader_that_has_nothing_to_do_rests(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its looks are as rare as those of any other reader, with slices and without."""
    pauses: list[float] = []
    pause = Looks.pause

    async def noting(self: Looks, end: int | None, at_most: float) -> None:
        pauses.append(at_most)
        await pause(self, end, at_most)

    monkeypatch.setattr(Looks, "pause", noting)
    async with client.subscription("ledger") as first, client.subscription("ledger") as second:
        assert (first.slices, second.slices) == ([0], [])
        for each in (first, second):
            pauses.clear()
            waiting = asyncio.ensure_future(anext(each.batches()))
            await eventually(lambda: len(pauses) >= 3, "some looks")
            waiting.cancel()
            assert min(pauses) >= 0.1


@pytest.mark.parametrize("again", [False, True], ids=["another", "the same"])
async def test_a_commit_of_a_subscription_that_was_made_anew(client: Client, again: bool) -> None:
    """What was read of the one that was removed moves nothing in the next one of its name."""
    await client.start("till", "a", 3)
    options: dict[str, Any] = {"start": "beginning", "lease_age": LONG}
    async with client.subscription("ledger", **options) as old:
        batch = await take(old.batches())
        storage = client._node.storage
        assert await storage.remove_subscription("ledger", act=None)
        await storage.subscribed("ledger", 1, (await storage.feed_head()).beginning)
        async with AsyncExitStack() as stack:
            if again:
                new = old
                await old._hold()
            else:
                new = await stack.enter_async_context(client.subscription("ledger", **options))
            assert new.slices == [0]
            with pytest.raises(SubscriptionLost):
                await batch.commit()
            assert ids(await take(new.batches())) == ids(batch)


@pytest.mark.parametrize(
    "loss",
    [
        "UPDATE feed SET appended_at = appended_at + interval '1 second'",
        "UPDATE feed_head SET position = 0",
        "UPDATE feed_head SET epoch = epoch # 1",
    ],
    ids=["another row", "no row", "another feed"],
)
async def test_a_commit_of_what_the_feed_has_lost(
    client: Client, tables: Tables, loss: LiteralString
) -> None:
    """It is refused, and the checkpoint stays: from the other place nobody could ever go on."""
    await client.start("till", "a", 3)
    stored = "SELECT position, item, n, mark, epoch, walk, walk_n FROM subscription_slices"
    async with client.subscription("ledger", start=FIRST, lease_age=LONG) as events:
        batch = await take(events.batches())
        before = tables.execute(stored)
        tables.execute(loss)
        with pytest.raises(SubscriptionLost, match="a fail-over lost what was read"):
            await batch.commit()
        assert tables.execute(stored) == before


@pytest.mark.parametrize("failure", [ValueError, asyncio.CancelledError])
async def test_what_cannot_be_told_is_not_passed_over(
    client: Client, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    """A loop that ends while it decodes a batch has not delivered it: the next loop gets the same one.

    What comes before an error is a batch of its own, so who moves behind the error passes over nothing.
    """
    await client.start("till", "a", 3)
    # The first error ends a batch, the second one comes first.
    told, failures = EventReader.told, 2 if failure is ValueError else 1

    async def fails(self: EventReader, entry: Any) -> FeedEvent:
        nonlocal failures
        if failures and entry.n == 2:
            failures -= 1
            raise failure("no")
        return await told(self, entry)

    monkeypatch.setattr(EventReader, "told", fails)
    async with client.subscription("ledger", start="beginning") as events:
        batches = events.batches(max=3)
        if failure is ValueError:
            first = await take(batches)
            assert ids(first) == [("a", 1)]
            await first.commit()
        with pytest.raises(failure):
            await take(batches)
        left = [("a", 2), ("a", 3)] if failure is ValueError else [("a", 1), ("a", 2), ("a", 3)]
        batches = events.batches(max=3)
        assert ids(await take(batches)) == left
    async with client.subscription("ledger") as events:
        batches = events.batches(max=2)
        first, *others = [await take(batches) for _ in range(len(left) - 1)]
        assert ids(first, *others) == left
        await first.commit()
    async with client.subscription("ledger") as events:
        if others:
            assert ids(await take(events.batches())) == left[2:]


async def test_two_loops_at_once(client: Client) -> None:
    """They share what comes: no event comes twice."""
    await client.start("till", "a", 4)
    async with client.subscription("ledger", start="beginning") as events:
        found = await asyncio.gather(*(take(events.batches(max=2)) for _ in range(2)))
        assert sorted(ids(*found)) == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]


async def test_one_that_is_not_entered(client: Client) -> None:
    """It is read within its block: before and behind it a loop would wait for ever."""
    events = client.subscription("ledger")
    with pytest.raises(InvalidRequest, match="inside of its `async with`"):
        await take(events.batches())
    async with events:
        waiting = asyncio.ensure_future(take(events.batches()))
    with pytest.raises(InvalidRequest, match="inside of its `async with`"):
        await waiting
    await client.start("till", "a")
    async with client.subscription("other", start="beginning") as events:
        batch = await take(events.batches())
    with pytest.raises(SubscriptionLost, match="this reader has left it"):
        await batch.commit()


async def test_an_entering_that_is_cancelled(
    client: Client, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves no slice in the hands of a reader that is not there."""
    hold = Subscriptions.hold_slices

    async def is_cancelled_then(self: Subscriptions, *args: Any, **kwargs: Any) -> None:
        await hold(self, *args, **kwargs)
        raise asyncio.CancelledError

    monkeypatch.setattr(Subscriptions, "hold_slices", is_cancelled_then)
    with pytest.raises(asyncio.CancelledError):
        async with client.subscription("ledger", lease_age=LONG):
            pass
    assert tables.execute("SELECT name FROM subscription_readers") == []
    assert tables.execute("SELECT name FROM subscription_slices WHERE reader_id IS NOT NULL") == []


async def test_a_clock_that_was_set_back(client: Client, tables: Tables) -> None:
    """A dead reader that was seen at a time to come is dead all the same."""
    async with client.subscription("ledger", lease_age=SHORT) as dead:
        await dead._background.stop()
        tables.execute("UPDATE subscription_readers SET seen_at = now() + interval '1 day'")
        async with client.subscription("ledger", lease_age=LONG) as living:
            assert living.slices == [0]


async def test_a_lost_answer(client: Client, dsn: str, tables: Tables) -> None:
    """A commit whose answer is lost is done once; slices that were taken so are held under one lease."""
    await client.start("till", "a", 2)
    storage = client._node.storage
    kept, lossy = storage._connections, LossyConnections(dsn, limit=1)
    storage._connections = lossy
    lossy.spared, lossy.late = 4, 1
    async with client.subscription("ledger", start="beginning", lease_age=LONG) as events:
        assert lossy.late == 0
        batch = await take(events.batches(max=1))
        lossy.late = 1
        await batch.commit()
        assert lossy.late == 0
        assert ids(await take(events.batches())) == [("a", 2)]
    (row,) = tables.execute("SELECT lease, walk_n FROM subscription_slices")
    assert row["walk_n"] == 1
    await lossy.close()
    storage._connections = kept


async def test_what_is_parked_while_an_operator_acts(client: Client, dsn: str) -> None:
    """Nothing of a process is tried again before what was parked earlier, whatever the operator saw."""
    storage = client._node.storage
    place = (await storage.feed_head()).last_place
    await storage.subscribed("ledger", 1, place)
    _, (held,) = await storage.hold_slices("ledger", 1, host="here", lease_age=LONG)

    async def park(n: int) -> None:
        entry = FeedEntry(place, 1, "e", "till", "a", n, 1, datetime.now(UTC), None, None)
        assert await storage.commit_slice(
            held.key, place, known=place, parks=[Parked(entry, str(n), 1, "no")]
        )

    async def wanted() -> list[int]:
        return [each.entry.n for each in await storage.acted_on(held.key, limit=10)]

    await park(1)
    async with await psycopg.AsyncConnection.connect(dsn) as operator:
        await operator.execute("UPDATE progressor.parked SET action = 'r'")
        await park(2)
    await park(3)
    assert await wanted() == [1]
    (first, *_) = await storage.acted_on(held.key, limit=10)
    assert await storage.act_on_parked("ledger", first.parked_no, act=None) == 3
    assert await storage.commit_slice(held.key, place, known=place, done=[first.parked_no])
    await park(4)
    assert await wanted() == [2, 3, 4]
    await storage.fail_parked(held.key, first.parked_no + 1, "no")
    await park(5)
    assert await wanted() == []
    assert await storage.act_on_parked("ledger", first.parked_no + 1, skip=True, act=None) == 4
    assert [each.is_skipped for each in await storage.acted_on(held.key, limit=10)] == [
        *(True, False, False, False)
    ]


class Readers:
    """Readers of one subscription that stop, come back and end, and what they have done."""

    def __init__(self, client: Client, tables: Tables, rand: random.Random) -> None:
        self._client = client
        self._tables = tables
        self._rand = rand
        self.live: list[Subscription] = []
        self._taken: list[Taken] = []
        self._under_way: dict[OpenSlice, list[Taken]] = defaultdict(list)
        self.done: list[tuple[str, int]] = []

    def new(self) -> Subscription:
        return self._client.subscription("ledger", start="beginning", slices=4, lease_age=LONG)

    async def enter(self) -> None:
        if len(self.live) < 4:
            self.live.append(await self.new().__aenter__())

    async def leave(self) -> None:
        if self.live:
            await self.live.pop(self._rand.randrange(len(self.live))).__aexit__(None, None, None)

    async def stop(self) -> None:
        """Stop one for so long that it counts as dead."""
        if self.live:
            reader = self._rand.choice(self.live)
            self._tables.execute(
                "UPDATE subscription_readers SET seen_at = now() - interval '1 day' WHERE reader_id = %s",
                reader._reader_id,
            )

    async def beat(self) -> None:
        if self.live:
            reader = self._rand.choice(self.live)
            await reader._hold()
            for open_ in reader._flowing:
                with suppress(SubscriptionLost):
                    await open_.advance(self._client._node)

    async def take(self) -> None:
        if self.live and (held := self._rand.choice(self.live)._flowing):
            reader = next(each for each in self.live if held[0] in each._flowing)
            open_ = self._rand.choice(held)
            await reader._read(open_, self._rand.randint(1, 4))
            if open_.entries and not open_.is_lost:
                taken = open_.deliver(self._rand.randint(1, 4))
                self._taken.append(taken)
                self._under_way[open_].append(taken)

    async def commit(self) -> None:
        """Commit something that was taken, however long ago, by whomever."""
        if self._taken:
            taken = self._rand.choice(self._taken[-6:])
            try:
                await taken.checkpoint().commit(self._client._node)
            except SubscriptionLost:
                return
            under_way = self._under_way[taken.of]
            while under_way and under_way[0].serial <= taken.serial:
                self.done += [(entry.process_id, entry.n) for entry in under_way.pop(0).entries]

    async def at_once(self) -> None:
        """Several of these at the same moment."""
        chosen = self._rand.choices([self.beat, self.commit, self.take, self.enter], k=3)
        await asyncio.gather(*(each() for each in chosen))


@pytest.mark.parametrize("seed", range(8))
async def test_each_is_committed_once(client: Client, tables: Tables, seed: int) -> None:
    """Readers that come, stop, come back and go: every event is committed once, in order by process."""
    rand = random.Random(seed)
    readers = Readers(client, tables, rand)
    made: dict[str, int] = {}

    async def work() -> None:
        name = f"p{rand.randint(1, 9)}"
        if name in made:
            await client.call("till", name, "add")
            made[name] += 1
        else:
            made[name] = rand.randint(0, 3)
            await client.start("till", name, made[name])

    for _ in range(10):
        await work()
    acts = [
        *(readers.enter, readers.leave, readers.stop, work, work, readers.at_once, readers.at_once),
        *(readers.beat, readers.beat, readers.take, readers.take, readers.commit, readers.commit),
    ]
    for _ in range(150):
        await rand.choice(acts)()
    for each in readers.live:
        await each.__aexit__(None, None, None)
    async with readers.new() as last:
        for open_ in last._flowing:
            while open_.has_more or open_.place.walk is not None:
                await last._read(open_, 10_000)
                open_.entries, found = [], open_.entries
                readers.done += [(entry.process_id, entry.n) for entry in found]
    for name, many in made.items():
        assert [n for process_id, n in readers.done if process_id == name] == list(range(1, many + 1))
