"""Forwarding to a sink that fails: nothing is passed over, and what is parked waits in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from progressor import (
    Client,
    Engine,
    FeedEvent,
    InvalidRequest,
    Namespace,
    NonRetryable,
    Process,
    RetryPolicy,
    StorageUnavailable,
)
from progressor.client.feed import forwarder
from progressor.storage.operations import Storage
from tests.support import Tables, eventually

till = Namespace("till", state=int, feed=True)
QUICK = RetryPolicy(
    initial_interval=timedelta(milliseconds=1), max_interval=timedelta(milliseconds=5), max_attempts=3
)


@till.init
async def begin(process: Process[int], many: int = 1) -> None:
    """Begin, with so many events."""
    process.state = 0
    for _ in range(many):
        process.emit("begun")


@till.call
async def add(process: Process[int]) -> None:
    """Add an event."""
    process.emit("added")


@pytest.fixture
async def client(dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """The client of an engine; operators' wishes are looked for often."""
    monkeypatch.setattr(forwarder, "_LOOK", 0.02)
    async with Engine(dsn, [till]) as engine:
        yield engine.client


class Books:
    """A sink that keeps what it gets; `refuses` and `fails` say at which events it does not."""

    def __init__(self) -> None:
        self.got: list[tuple[str, int | None]] = []
        self.refuses: set[tuple[str, int | None]] = set()
        self.is_away = False
        self.asked = 0

    async def send(self, events: Sequence[FeedEvent]) -> None:
        self.asked += 1
        if self.is_away:
            raise ConnectionError("nobody there")
        found = [(each.process_id, each.event_id) for each in events]
        if self.refuses & set(found):
            raise NonRetryable(f"never {self.refuses & set(found)}")
        self.got += found

    async def close(self) -> None:
        """Nothing is open."""

    def of(self, name: str) -> list[int | None]:
        """The events of a process, in the order in which they came."""
        return [n for process_id, n in self.got if process_id == name]


@contextmanager
def forwarding(client: Client, sink: Books, **options: Any) -> Iterator[asyncio.Task[None]]:
    """Forward in the block."""
    given = {"start": "beginning", "retries": QUICK, **options}
    task = asyncio.create_task(client.forward("books", sink, **given))
    try:
        yield task
    finally:
        task.cancel()


async def ended(task: asyncio.Task[None]) -> None:
    """Wait for a forwarder that was cancelled."""
    await asyncio.gather(task, return_exceptions=True)


class Patient(Books):
    """A sink that takes its time for each event."""

    async def send(self, events: Sequence[FeedEvent]) -> None:
        await asyncio.sleep(0.005 * len(events))
        await super().send(events)


async def test_a_slow_receiver_gets_on_however_often_it_is_restarted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it took counts after a while, and not when all is through that has come together."""
    monkeypatch.setattr(forwarder, "_PART_SECONDS", 0.1)
    await client.start("till", "a", 300)
    sinks = [Patient() for _ in range(3)]
    for sink in sinks:
        with forwarding(client, sink) as task:
            await eventually(lambda sink=sink: len(sink.got) >= 60, "it has taken some")
        await ended(task)
    first, second, third = (sink.of("a") for sink in sinks)
    # Of what was taken, one part at most comes again.
    assert second[0] > first[-1] - 40
    assert third[0] > second[-1] - 40


async def test_each_once(client: Client) -> None:
    """What was stored, and what comes; a forwarder that begins anew goes on behind it."""
    sink = Books()
    for name in "abc":
        await client.start("till", name, 3)
    with forwarding(client, sink) as task:
        await eventually(lambda: len(sink.got) == 9, "what was stored")
        await client.call("till", "b", "add")
        await eventually(lambda: len(sink.got) == 10, "what came")
        await ended_soon(client, "books", position=True)
    await ended(task)
    with forwarding(client, sink) as task:
        await client.call("till", "a", "add")
        await eventually(lambda: len(sink.got) >= 11, "what came later")
    await ended(task)
    assert sorted(sink.got) == sorted(
        [(name, n) for name in "abc" for n in (1, 2, 3)] + [("a", 4), ("b", 4)]
    )


async def ended_soon(client: Client, name: str, *, position: bool) -> None:
    """Wait until a subscription has nothing left to do."""
    for _ in range(1000):
        (known,) = await client._node.storage.known_subscriptions(name)
        if known.behind == 0 and not known.is_walking and known.failing_since is None:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(known)


async def test_an_outage_holds_up_all(client: Client) -> None:
    """Nothing is parked, whatever the policy; operators see it; then all comes, in order."""
    sink = Books()
    sink.is_away = True
    await client.start("till", "a", 3)
    with forwarding(client, sink, on_failure="park") as task:
        await eventually(lambda: sink.asked > 5, "attempts beyond those of an event")
        (known,) = await client._node.storage.known_subscriptions("books")
        assert known.failing_since is not None
        assert known.attempts > 3
        assert known.error == "ConnectionError: nobody there"
        assert known.parked == 0
        sink.is_away = False
        await eventually(lambda: sink.of("a") == [1, 2, 3], "all of it")
        await ended_soon(client, "books", position=True)
    await ended(task)
    (known,) = await client._node.storage.known_subscriptions("books")
    assert (known.failing_since, known.attempts, known.error) == (None, 0, None)


class Limited(Books):
    """A sink that takes only so many events of an attempt; the first of them have come by then."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.come: list[tuple[str, int | None]] = []

    async def send(self, events: Sequence[FeedEvent]) -> None:
        self.come += [(each.process_id, each.event_id) for each in events[: self.most]]
        if len(events) > self.most:
            self.asked += 1
            raise ConnectionError("too many requests")
        await super().send(events)


@pytest.mark.parametrize("most", [1, 3])
async def test_a_receiver_that_takes_few_at_once_gets_all(client: Client, most: int) -> None:
    """What it has taken counts, with a checkpoint behind it: the rest follows in order."""
    sink = Limited(most)
    for name in "abcd":
        await client.start("till", name, 10)
    with forwarding(client, sink) as task:
        await eventually(lambda: len(sink.got) == 40, "all of it")
        await ended_soon(client, "books", position=True)
    await ended(task)
    assert [sink.of(name) for name in "abcd"] == [list(range(1, 11))] * 4
    # Of each half that failed some came twice, and no more.
    assert len(sink.come) <= 40 + 6 * most
    (known,) = await client._node.storage.known_subscriptions("books")
    assert (known.failing_since, known.attempts, known.error) == (None, 0, None)


async def test_a_poisoned_event_behind_an_outage_is_parked(client: Client) -> None:
    """What was taken in parts before it is not sent again, and the checkpoint does not go back."""
    sink = Limited(2)
    sink.refuses = {("c", 5)}
    for name in "abcd":
        await client.start("till", name, 10)
    with forwarding(client, sink, on_failure="park") as task:
        await eventually(lambda: sink.of("d") == list(range(1, 11)), "what comes behind it")
        assert sink.of("c") == [1, 2, 3, 4]
        assert [sink.of(name) for name in "ab"] == [list(range(1, 11))] * 2
        sink.refuses = set()
        await client.retry_parked("books")
        await eventually(lambda: sink.of("c") == list(range(1, 11)), "what was parked")
    await ended(task)


async def test_a_poisoned_event_holds_up_what_comes_behind(client: Client) -> None:
    """With `block`: what came before is delivered, nothing behind, until it is accepted."""
    sink = Books()
    sink.refuses = {("b", 2)}
    for name in "abc":
        await client.start("till", name, 2)
    with forwarding(client, sink) as task:
        await eventually(lambda: sink.asked > 6, "attempts")
        assert sink.got == [("a", 1), ("a", 2), ("b", 1)]
        sink.refuses = set()
        await eventually(lambda: len(sink.got) == 6, "the rest")
    await ended(task)
    assert sink.got[3:] == [("b", 2), ("c", 1), ("c", 2)]


async def test_a_poisoned_event_is_parked(client: Client) -> None:
    """With `park`: later events of its process wait behind it, others flow; a retry brings all in order."""
    sink, storage = Books(), client._node.storage
    sink.refuses = {("b", 2)}
    for name in "abc":
        await client.start("till", name, 2)
    with forwarding(client, sink, on_failure="park") as task:
        await eventually(lambda: ("c", 2) in sink.got, "the others")
        assert sink.of("b") == [1]
        for name in "bab":
            await client.call("till", name, "add")
        await eventually(lambda: sink.of("a") == [1, 2, 3], "what came later")
        parked = await until_parked(storage, 3)
        assert [(each.process_id, each.n, each.error is None) for each in parked] == [
            ("b", 2, False),
            ("b", 3, True),
            ("b", 4, True),
        ]
        assert (parked[0].attempts, parked[0].action) == (1, None)
        (known,) = await storage.known_subscriptions("books")
        assert (known.parked, known.parked_processes, known.behind) == (3, 1, 0)
        # It fails again: all wait on.
        assert await storage.act_on_parked("books", parked[1].parked_no, act=None) == 3
        again = await until_parked(storage, 3, attempts=2)
        assert [each.action for each in again] == [None, None, None]
        sink.refuses = set()
        await storage.act_on_parked("books", None, act=None)
        await eventually(lambda: sink.of("b") == [1, 2, 3, 4], "in order")
        await until_parked(storage, 0)
        await client.call("till", "b", "add")
        await eventually(lambda: sink.of("b") == [1, 2, 3, 4, 5], "it flows again")
    await ended(task)


async def until_parked(storage: Storage, count: int, *, attempts: int = 0) -> list[Any]:
    """What is parked, once it is so much, and the first was tried so often."""
    for _ in range(1000):
        found = await storage.parked_entries("books", behind=0, limit=100)
        if len(found) == count and (not found or found[0].attempts >= attempts):
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(found)


async def test_what_is_skipped(client: Client) -> None:
    """It is left out for good; what waits behind it comes."""
    sink, storage = Books(), client._node.storage
    sink.refuses = {("b", 1)}
    await client.start("till", "b", 3)
    with forwarding(client, sink, on_failure="park") as task:
        first, *_ = await until_parked(storage, 3)
        assert await storage.act_on_parked("books", first.parked_no, skip=True, act=None) == 3
        await eventually(lambda: sink.of("b") == [2, 3], "those behind it")
        await until_parked(storage, 0)
        # A second wish for the same one finds nothing.
        assert await storage.act_on_parked("books", first.parked_no, skip=True, act=None) == 0
    await ended(task)


async def test_an_operator_has_what_blocks_parked(client: Client) -> None:
    """At the next attempt, whatever the policy; what comes behind flows."""
    sink, storage = Books(), client._node.storage
    sink.refuses = {("b", 1)}
    await client.start("till", "b", 2)
    await client.start("till", "c", 1)
    with forwarding(client, sink) as task:
        await eventually(lambda: sink.asked > 4, "attempts")
        assert await storage.park_failing("books", act=None) == 1
        await eventually(lambda: sink.of("c") == [1], "what comes behind")
        assert len(await until_parked(storage, 2)) == 2
        assert await storage.park_failing("books", act=None) == 0
    await ended(task)


async def test_a_new_reader_knows_what_is_parked(client: Client) -> None:
    """Later events of the process wait behind it, though another OS process has parked it."""
    sink, storage = Books(), client._node.storage
    sink.refuses = {("b", 1)}
    await client.start("till", "b", 1)
    with forwarding(client, sink, on_failure="park") as task:
        await until_parked(storage, 1)
    await ended(task)
    sink.refuses = set()
    await client.call("till", "b", "add")
    await client.start("till", "c", 1)
    with forwarding(client, sink, on_failure="park") as task:
        await eventually(lambda: sink.of("c") == [1], "the other")
        await until_parked(storage, 2)
        assert sink.of("b") == []
        await storage.act_on_parked("books", None, act=None)
        await eventually(lambda: sink.of("b") == [1, 2], "in order")
    await ended(task)


async def test_one_slice_does_not_hold_up_another(client: Client) -> None:
    """Of one reader too."""
    sink = Books()
    names = [f"p{number}" for number in range(12)]
    sink.refuses = {(names[0], 1)}
    with forwarding(client, sink, slices=4) as task:
        for name in names:
            await client.start("till", name, 1)
        await eventually(lambda: len(sink.got) >= 6, "those of other slices")
        assert sink.of(names[0]) == []
        sink.refuses = set()
        await eventually(lambda: len(sink.got) == 12, "all")
    await ended(task)


async def test_storage_fails_while_a_delivery_is_tried_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken and not committed is read again: nothing is passed over."""
    sink = Books()
    sink.is_away = True
    noted = Storage.note_failing
    failures = iter([True, True])

    async def note(storage: Storage, *args: Any, **kwargs: Any) -> Any:
        if next(failures, False):
            raise StorageUnavailable("gone")
        return await noted(storage, *args, **kwargs)

    monkeypatch.setattr(Storage, "note_failing", note)
    await client.start("till", "a", 3)
    with forwarding(client, sink) as task:
        await eventually(lambda: next(failures, None) is None and sink.asked > 3, "attempts")
        sink.is_away = False
        await eventually(lambda: sink.of("a") == [1, 2, 3], "all of it")
    await ended(task)


async def test_two_forwarders(client: Client, tables: Tables) -> None:
    """One sends at a time; the other goes on when it ends."""
    first, second = Books(), Books()
    with forwarding(client, first) as one:
        await client.start("till", "a", 1)
        await eventually(lambda: first.got, "the first")
        with forwarding(client, second) as two:
            await eventually(
                lambda: tables.execute("SELECT count(*) AS many FROM subscription_readers")[0]["many"] == 2,
                "two readers",
            )
            await client.call("till", "a", "add")
            await eventually(lambda: first.of("a") == [1, 2], "the first again")
            await ended_soon(client, "books", position=True)
            one.cancel()
            await ended(one)
            await client.call("till", "a", "add")
            await eventually(lambda: second.of("a") == [3], "the second")
        await ended(two)


async def test_bad_arguments(client: Client) -> None:
    """Each is named."""
    with pytest.raises(InvalidRequest, match="on_failure must be block or park"):
        await client.forward("books", Books(), on_failure="drop")  # type: ignore[arg-type]
