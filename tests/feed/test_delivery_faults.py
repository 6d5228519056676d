"""Deliveries that fail in odd ways: nothing counts twice, nothing spins, and operators are heeded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from progressor import (
    Client,
    Engine,
    FeedEvent,
    NonRetryable,
    Projection,
    RetryPolicy,
    StorageUnavailable,
)
from progressor.client.feed import forwarder, subscription
from progressor.client.feed.slices import OpenSlice
from progressor.client.feed.subscription import Subscription
from progressor.errors.of_handlers import StepNotSaved
from progressor.sinks.config import ForwardedTo
from progressor.sinks.function import FunctionOptions
from progressor.storage.operations import Storage
from progressor.storage.own_sql.transactions import StepTransactions
from tests.feed.test_forwarding import QUICK, Books, ended, forwarding, till, until_parked
from tests.support import Tables, eventually


@pytest.fixture
async def client(dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """The client of an engine; operators' wishes and leases are looked for often."""
    monkeypatch.setattr(forwarder, "_LOOK", 0.02)
    monkeypatch.setattr(subscription, "_BEATS", 50)
    tables.execute("CREATE TABLE public.seen (what text NOT NULL)")
    async with Engine(dsn, [till]) as engine:
        yield engine.client


def seen(tables: Tables) -> list[str]:
    return sorted(row["what"] for row in tables.execute("SELECT what FROM public.seen"))


def counted(monkeypatch: pytest.MonkeyPatch, verb: str) -> list[str]:
    """Count the calls of a method of Storage."""
    calls: list[str] = []
    called = getattr(Storage, verb)

    async def count(storage: Storage, *args: Any, **kwargs: Any) -> Any:
        calls.append(verb)
        return await called(storage, *args, **kwargs)

    monkeypatch.setattr(Storage, verb, count)
    return calls


class Saying(Books):
    """A sink whose refusals have a text that PostgreSQL cannot keep."""

    async def send(self, events: Sequence[FeedEvent]) -> None:
        try:
            await super().send(events)
        except NonRetryable:
            raise NonRetryable("no \x00 and no \ud800") from None


async def test_an_error_with_a_text_that_cannot_be_stored(client: Client) -> None:
    """It is noted all the same, what is to blame is parked, and a retry that fails ends nothing."""
    sink, storage = Saying(), client._node.storage
    sink.refuses = {("b", 1)}
    await client.start("till", "b", 1)
    with forwarding(client, sink, on_failure="park") as task:
        (parked,) = await until_parked(storage, 1)
        assert parked.error is not None
        assert parked.error.startswith("NonRetryable: no ")
        await storage.act_on_parked("books", None, act=None)
        await until_parked(storage, 1, attempts=2)
        assert not task.done()
    await ended(task)


async def test_an_operator_parks_while_nothing_can_begin(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to park: attempts go on with their pauses."""
    slow = RetryPolicy(initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.0)
    projection = Projection("books", retries=slow)

    @projection.on("till")
    async def see(event: FeedEvent, connection: Any) -> None:
        """Do nothing."""

    @projection.clear
    async def clear(connection: Any) -> None:
        raise ValueError("not yet")

    await client.start("till", "a", 1)
    notes = counted(monkeypatch, "note_failing")
    task = asyncio.create_task(client.project(projection))
    # One failure is noted before the next attempt.
    await eventually(lambda: len(notes) > 1, "failures")
    assert await client.park_failing("books") == 1
    notes.clear()
    began = monotonic()
    await eventually(lambda: len(notes) >= 4, "more failures")
    # There is a pause between any two.
    assert monotonic() - began >= 0.25
    task.cancel()
    await ended(task)


async def test_what_an_operator_has_moved_past_is_not_sent(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has lost its slice while it waited for the next attempt sends nothing old."""
    lost: list[OpenSlice] = []
    drop = Subscription._drop

    def noted(self: Subscription, open_: OpenSlice) -> None:
        drop(self, open_)
        lost.append(open_)

    monkeypatch.setattr(Subscription, "_drop", noted)
    sink = Books()
    sink.is_away = True
    await client.start("till", "a", 2)
    slow = RetryPolicy(initial_interval=timedelta(seconds=1), max_interval=timedelta(seconds=1))
    with forwarding(client, sink, retries=slow) as task:
        await eventually(lambda: sink.asked, "an attempt")
        await client.move_subscription("books", "latest")
        await eventually(lambda: lost, "the reader hears of it")
        sink.is_away = False
        await client.call("till", "a", "add")
        await eventually(lambda: sink.got, "what is new")
        await eventually(lambda: not lost[0].is_stuck, "what was tried is given up")
        assert sink.of("a") == [3]
    await ended(task)


class Slow(Books):
    """A sink that takes its time for one process."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.hangs_at: set[str] = set()
        self.hung: list[str] = []

    async def send(self, events: Sequence[FeedEvent]) -> None:
        for each in events:
            if each.process_id in self.hangs_at:
                self.hung.append(each.process_id)
                await self.goes_on.wait()
        await super().send(events)


async def parked_in_one_slice(client: Client, sink: Slow, names: Sequence[str]) -> None:
    """Park the first event of these."""
    for name in names:
        await client.start("till", name, 1)
    await until_parked(client._node.storage, len(names))
    sink.refuses = set()


async def test_a_retry_holds_up_its_slice_alone(client: Client) -> None:
    """While a parked event is on its way, the other slices flow."""
    sink, storage = Slow(), client._node.storage
    sink.refuses = {("b", 1)}
    with forwarding(client, sink, slices=4, on_failure="park") as task:
        await parked_in_one_slice(client, sink, "b")
        sink.hangs_at = {"b"}
        await storage.act_on_parked("books", None, act=None)
        await eventually(lambda: sink.hung, "the retry")
        for number in range(12):
            await client.start("till", f"p{number}", 1)
        await eventually(lambda: len(sink.got) >= 6, "those of other slices")
        sink.goes_on.set()
        await eventually(lambda: len(sink.got) == 13, "all")
    await ended(task)


async def test_a_slice_stays_while_a_retry_is_under_way(client: Client, tables: Tables) -> None:
    """Another reader does not get it in between, so nothing parked is sent by two at once."""
    first, second, storage = Slow(), Slow(), client._node.storage
    names = [f"p{number}" for number in range(8)]
    first.refuses = {(name, 1) for name in names}
    with forwarding(client, first, slices=2, on_failure="park") as one:
        await parked_in_one_slice(client, first, names)
        first.hangs_at = set(names)
        await storage.act_on_parked("books", None, act=None)
        await eventually(lambda: first.hung, "the retry")
        with forwarding(client, second) as two:
            await eventually(
                lambda: tables.execute("SELECT count(*) AS many FROM subscription_readers")[0]["many"] == 2,
                "two readers",
            )
            await asyncio.sleep(0.8)
            assert not {*first.hung} & {name for name, _ in second.got}
            first.hangs_at = set()
            first.goes_on.set()
            await until_parked(storage, 0)
            assert sorted(first.got + second.got) == [(name, 1) for name in names]
        await ended(two)
    await ended(one)


async def test_a_second_wish_during_a_retry(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes for what has just failed is heeded, and nothing spins."""
    sink, storage = Slow(), client._node.storage
    sink.refuses = {("a", 1), ("b", 1)}
    with forwarding(client, sink, on_failure="park") as task:
        await parked_in_one_slice(client, sink, "ab")
        sink.refuses, sink.hangs_at = {("a", 1)}, {"b"}
        await storage.act_on_parked("books", None, act=None)
        await eventually(lambda: sink.hung, "the retry of the second")
        # The first has failed again by now.
        await storage.act_on_parked("books", None, act=None)
        looks = counted(monkeypatch, "acted_on")
        sink.goes_on.set()
        await eventually(lambda: sink.of("b") == [1], "the second")
        await asyncio.sleep(0.5)
        assert len(looks) < 60
        sink.refuses = set()
        await storage.act_on_parked("books", None, act=None)
        await until_parked(storage, 0)
    await ended(task)


async def test_a_skip_behind_what_fails_again(client: Client) -> None:
    """What is skipped is left out for good, though what is before it fails, and though a retry follows."""
    sink, storage = Books(), client._node.storage
    sink.refuses = {("b", 1)}
    await client.start("till", "b", 3)
    with forwarding(client, sink, on_failure="park") as task:
        _, second, third = await until_parked(storage, 3)
        await storage.act_on_parked("books", second.parked_no, skip=True, act=None)
        await until_parked(storage, 2)
    await ended(task)
    await storage.act_on_parked("books", third.parked_no, skip=True, act=None)
    await storage.act_on_parked("books", None, act=None)
    sink.refuses = set()
    with forwarding(client, sink, on_failure="park") as task:
        await until_parked(storage, 0)
        assert sink.of("b") == [1]
    await ended(task)


async def test_a_function_whose_namespaces_overlap(client: Client, tables: Tables) -> None:
    """Each event counts once, however many of the patterns fit."""
    tables.execute(
        "CREATE FUNCTION public.see(jsonb) RETURNS void LANGUAGE sql AS "
        "'INSERT INTO public.seen VALUES ($1 ->> ''id'')'"
    )
    options = FunctionOptions(type="function", function="public.see")
    chosen = ForwardedTo(namespaces=["*", "till"], events=["begun", "begun"], start="beginning")
    await client.start("till", "a", 2)
    task = asyncio.create_task(client.project(options.projection("seeing", chosen)))
    await eventually(lambda: len(set(seen(tables))) == 2, "both events")
    task.cancel()
    await ended(task)
    assert len(seen(tables)) == 2


async def test_an_outage_is_no_attempt_of_an_event(
    client: Client, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event that comes first behind it has all its attempts."""
    projection = Projection("books", retries=QUICK, on_failure="park")
    # In its batch, and alone.
    fails = iter([True, True])

    @projection.on("till")
    async def see(event: FeedEvent, connection: Any) -> None:
        if next(fails, False):
            raise ValueError("once")
        await connection.execute("INSERT INTO public.seen VALUES (%s)", [event.process_id])

    take, away = StepTransactions.take, iter([True] * 6)

    async def taken(pool: StepTransactions) -> Any:
        if next(away, False):
            raise StepNotSaved("no connection")
        return await take(pool)

    monkeypatch.setattr(StepTransactions, "take", taken)
    await client.start("till", "a", 1)
    task = asyncio.create_task(client.project(projection))
    await eventually(lambda: seen(tables) == ["a"], "the event")
    task.cancel()
    await ended(task)


async def test_a_statement_of_sqlalchemy_that_hangs(client: Client, tables: Tables) -> None:
    """Its time-out blames the event, which is parked; the others of its batch are kept."""
    projection = Projection("books", retries=QUICK, on_failure="park", timeout=timedelta(seconds=1))

    @projection.on("till")
    async def see(event: FeedEvent, connection: AsyncConnection) -> None:
        await connection.execute(text("INSERT INTO public.seen VALUES (:it)"), {"it": event.process_id})
        if event.process_id == "b":
            await connection.execute(text("SELECT pg_sleep(60)"))

    for name in "abc":
        await client.start("till", name, 1)
    task = asyncio.create_task(client.project(projection))
    await eventually(lambda: seen(tables) == ["a", "c"], "the others")
    (parked,) = await until_parked(client._node.storage, 1)
    task.cancel()
    await ended(task)
    assert (parked.process_id, parked.attempts) == ("b", 3)


async def test_an_outage_that_lasts(
    client: Client, tables: Tables, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A projection that cannot read for longer than its patience goes on behind it, and is no defect."""
    projection = Projection("books")

    @projection.on("till")
    async def see(event: FeedEvent, connection: Any) -> None:
        await connection.execute("INSERT INTO public.seen VALUES (%s)", [event.process_id])

    read, away = Storage.read_feed, iter([True] * 3)

    async def reads(storage: Storage, *args: Any, **kwargs: Any) -> Any:
        if next(away, False):
            raise StorageUnavailable("PostgreSQL did not do it within 30 s")
        return await read(storage, *args, **kwargs)

    monkeypatch.setattr(Storage, "read_feed", reads)
    await client.start("till", "a", 1)
    task = asyncio.create_task(client.project(projection))
    await eventually(lambda: seen(tables) == ["a"], "the event")
    assert next(away, None) is None
    assert "subscription not read, going on" in caplog.text
    task.cancel()
    await ended(task)
