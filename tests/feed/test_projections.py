"""Projections: tables of one's own that equal what the events say, whatever fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from progressor import (
    App,
    Client,
    Engine,
    FeedEvent,
    FeedTruncated,
    InvalidRequest,
    Namespace,
    Process,
    Projection,
    RetryPolicy,
)
from progressor.client.feed import forwarder, subscription
from tests.support import Tables, eventually

till = Namespace("till", state=int, feed=True)
QUICK = RetryPolicy(
    initial_interval=timedelta(milliseconds=1), max_interval=timedelta(milliseconds=5), max_attempts=3
)
_ADD = """
INSERT INTO totals (account, total) VALUES (%s, %s)
ON CONFLICT (account) DO UPDATE SET total = totals.total + excluded.total
"""

# What a restore does: the rows and the checkpoint that a backup has.
_BACKUP = "CREATE TABLE public.backup AS SELECT s.*, t.* FROM subscription_slices AS s, public.totals AS t"
_ROWS_BACK = "t AS (UPDATE public.totals AS t SET total = b.total FROM public.backup AS b)"
_CHECKPOINT_BACK = (
    "UPDATE subscription_slices SET position = b.position, item = b.item, n = b.n, mark = b.mark, "
    "walk = b.walk, walk_n = b.walk_n FROM public.backup AS b"
)


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
    process.emit("left")
    process.remove()


@pytest.fixture
async def engine(dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine, with a table of totals; operators' wishes are looked for often."""
    monkeypatch.setattr(forwarder, "_LOOK", 0.02)
    make_table(tables)
    async with Engine(dsn, [till]) as engine:
        yield engine


def make_table(tables: Tables) -> None:
    tables.execute("CREATE TABLE public.totals (account text PRIMARY KEY, total bigint NOT NULL)")


def totals(tables: Tables) -> dict[str, int]:
    return {row["account"]: row["total"] for row in tables.execute("SELECT * FROM public.totals")}


def from_events(tables: Tables) -> dict[str, int]:
    """The totals by the events themselves."""
    rows = tables.execute(
        "SELECT p.process_id, sum((convert_from(e.payload, 'UTF8')::jsonb ->> 'amount')::bigint) AS total "
        "FROM events AS e JOIN processes AS p USING (process_no) "
        "WHERE e.metadata ->> 'name' = 'added' GROUP BY 1"
    )
    return {row["process_id"]: int(row["total"]) for row in rows}


def summing(name: str = "totals", **options: Any) -> Projection:
    """A projection that sums up."""
    projection = Projection(name, retries=QUICK, **options)

    @projection.on("till", "added")
    async def added(event: FeedEvent, connection: Any) -> None:
        await connection.execute(_ADD, (event.process_id, event.payload["amount"]))

    @projection.on("till", kind="removed")
    async def gone(event: FeedEvent, connection: Any) -> None:
        await connection.execute("DELETE FROM totals WHERE account = %s", (event.process_id,))

    @projection.clear
    async def clear(connection: Any) -> None:
        await connection.execute("DELETE FROM totals")

    return projection


@contextmanager
def projecting(client: Client, projection: Projection) -> Iterator[asyncio.Task[None]]:
    """Run a projection in the block."""
    task = asyncio.create_task(client.project(projection))
    try:
        yield task
    finally:
        task.cancel()


async def test_it_equals_what_the_events_say(engine: Engine, tables: Tables) -> None:
    """What was stored before, and what comes; what is removed is gone there too."""
    client = engine.client
    for name in "abc":
        await client.start("till", name)
        await client.call("till", name, "add", 3)
    with projecting(client, summing()):
        await eventually(lambda: totals(tables) == {"a": 3, "b": 3, "c": 3}, "what was stored")
        await client.call("till", "b", "add", 4)
        await client.call("till", "c", "leave")
        await eventually(lambda: totals(tables) == {"a": 3, "b": 7}, "what came")


async def test_events_that_were_deleted_before(
    engine: Engine, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """Their names are gone, so no function is called for them; a line says how many there were."""
    client = engine.client
    await client.start("till", "a")
    await client.call("till", "a", "add", 8)
    with projecting(client, summing()):
        await eventually(lambda: totals(tables) == {"a": 8}, "what was there")
    for amount in (1, 2, 4):
        await client.call("till", "a", "add", amount)
    tables.execute("DELETE FROM events WHERE event_id IN (2, 3)")
    with projecting(client, summing()):
        await eventually(lambda: totals(tables) == {"a": 12}, "what is left")
    (line,) = [each for each in caplog.records if "were deleted before" in each.message]
    assert (vars(line)["projection"], vars(line)["events"], vars(line)["event_id"]) == ("totals", 2, 2)


async def test_an_engine_runs_those_of_its_app(dsn: str, tables: Tables) -> None:
    """And another engine goes on when it ends, each event once."""
    make_table(tables)
    app = App([till], projections=[summing()])
    async with Engine(dsn, app) as first:
        await first.client.start("till", "a")
        await first.client.call("till", "a", "add", 1)
        await eventually(lambda: totals(tables) == {"a": 1}, "the first engine")
        async with Engine(dsn, app) as second:
            await second.client.call("till", "a", "add", 1)
            await eventually(lambda: totals(tables) == {"a": 2}, "one of them")
            await first.stop()
            await second.client.call("till", "a", "add", 1)
            await eventually(lambda: totals(tables) == {"a": 3}, "the second engine")


@pytest.mark.parametrize("seed", range(3))
async def test_connections_are_cut_again_and_again(
    engine: Engine, tables: Tables, dsn: str, seed: int
) -> None:
    """Each event counts once: at the end the totals are those of the events."""
    rand = random.Random(seed)
    client = engine.client
    names = [f"p{number}" for number in range(5)]
    for name in names:
        await client.start("till", name)
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> 'tables'"
    )
    with projecting(client, summing()):
        async with await psycopg.AsyncConnection.connect(
            dsn, autocommit=True, application_name="tables"
        ) as connection:
            tables.execute("SET application_name = 'tables'")
            for _ in range(40):
                await client.call("till", rand.choice(names), "add", rand.randint(1, 9))
                if rand.random() < 0.3:
                    await asyncio.sleep(rand.random() * 0.01)
                    await connection.execute(cut)
        await eventually(lambda: totals(tables) == from_events(tables), "the totals of the events")
        # Once more, so that nothing comes twice behind it.
        for name in names:
            await client.call("till", name, "add", 1)
        await eventually(lambda: totals(tables) == from_events(tables), "the totals of the events")


async def test_a_commit_without_an_answer(
    engine: Engine, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known whether the batch counts: the checkpoint tells, and nothing counts twice."""
    from progressor.errors.of_handlers import StepNotSaved  # noqa: PLC0415
    from progressor.storage.own_sql.transactions import StepTransaction  # noqa: PLC0415

    commit, lost = StepTransaction.commit, [True, True, True]

    async def commit_and_lose(own: StepTransaction, *args: Any) -> bool:
        done = await commit(own, *args)
        if lost and lost.pop():
            raise StepNotSaved("the answer is lost")
        return done

    monkeypatch.setattr(StepTransaction, "commit", commit_and_lose)
    client = engine.client
    await client.start("till", "a")
    with projecting(client, summing()):
        while lost:
            await client.call("till", "a", "add", 1)
        await eventually(lambda: totals(tables) == from_events(tables), "all")
        await client.call("till", "a", "add", 1)
        await eventually(lambda: totals(tables) == from_events(tables), "one more")


async def test_a_function_that_raises(engine: Engine, tables: Tables) -> None:
    """Its rows are rolled back, those of other events are kept; parked, and tried again by an operator."""
    broken = True
    projection = Projection("totals", retries=QUICK, on_failure="park")

    @projection.on("till", "added")
    async def added(event: FeedEvent, connection: Any) -> None:
        await connection.execute(_ADD, (event.process_id, event.payload["amount"]))
        if event.process_id == "b" and broken:
            raise ValueError("b is odd")

    client, storage = engine.client, engine.node.storage
    for name in "abc":
        await client.start("till", name)
        await client.call("till", name, "add", 1)
    with projecting(client, projection):
        await eventually(lambda: totals(tables) == {"a": 1, "c": 1}, "the others")
        await client.call("till", "b", "add", 1)
        await client.call("till", "c", "add", 1)
        await eventually(lambda: totals(tables) == {"a": 1, "c": 2}, "the others, later")
        broken = False
        await storage.act_on_parked("totals", None, act=None)
        await eventually(lambda: totals(tables) == {"a": 1, "b": 2, "c": 2}, "all")
    (known,) = await storage.known_subscriptions("totals")
    assert known.parked == 0


async def test_a_fail_over_loses_what_is_tried_again(engine: Engine, tables: Tables) -> None:
    """What was read before and could not be written yet is not written where it never was."""
    projection, failures, client = Projection("totals", retries=QUICK), ["b"], engine.client

    @projection.on("till", "added")
    async def added(event: FeedEvent, connection: Any) -> None:
        if event.process_id in failures:
            failures.clear()
            lost = "DELETE FROM feed AS f USING feed_head AS h WHERE f.position = h.position"
            await asyncio.to_thread(tables.execute, lost)
            await asyncio.to_thread(tables.execute, "UPDATE feed_head SET position = position - 1")
            raise LookupError
        await connection.execute(_ADD, (event.process_id, event.payload["amount"]))

    for name in "abc":
        await client.start("till", name)
    with projecting(client, projection) as running:
        await client.call("till", "a", "add", 1)
        await eventually(lambda: totals(tables) == {"a": 1}, "the first event")
        await client.call("till", "b", "add", 2)
        await eventually(lambda: not failures, "a failure")
        await client.call("till", "c", "add", 3)
        await eventually(lambda: "c" in totals(tables) or running.done(), "the last event")
        assert (totals(tables), running.done()) == ({"a": 1, "c": 3}, False)


@pytest.mark.parametrize("comes", [False, True])
async def test_a_restore_loses_rows_and_their_checkpoint(
    engine: Engine, tables: Tables, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    """The feed has what they were made of: it is read again, though reader and lease are the same."""
    monkeypatch.setattr(subscription, "_BEATS", 1 if comes else 1000)
    client = engine.client
    await client.start("till", "a")
    with projecting(client, summing()):
        await client.call("till", "a", "add", 1)
        await eventually(lambda: totals(tables) == {"a": 1}, "what the backup has")
        tables.execute(_BACKUP)
        await client.call("till", "a", "add", 2)
        await eventually(lambda: totals(tables) == {"a": 3}, "what is lost")
        tables.execute(f"WITH {_ROWS_BACK} {_CHECKPOINT_BACK}")
        if comes:
            await client.call("till", "a", "add", 4)
        await eventually(lambda: totals(tables) == from_events(tables), "all that the feed has")


async def test_it_outlasts_a_fail_over(engine: Engine, tables: Tables) -> None:
    """A standby that was behind has neither the last row, nor the total, nor the checkpoint behind it."""
    client = engine.client
    await client.start("till", "a")
    with projecting(client, summing()) as running:
        await client.call("till", "a", "add", 1)
        await eventually(lambda: totals(tables) == {"a": 1}, "what the standby has")
        tables.execute(_BACKUP)
        await client.call("till", "a", "add", 2)
        await eventually(lambda: totals(tables) == {"a": 3}, "what is lost")
        tables.execute(
            "WITH lost AS (DELETE FROM feed AS f USING feed_head AS h WHERE f.position = h.position), "
            f"back AS (UPDATE feed_head SET position = position - 1), {_ROWS_BACK} {_CHECKPOINT_BACK}"
        )
        await client.call("till", "a", "add", 4)
        await eventually(lambda: totals(tables) == {"a": 5} or running.done(), "what came since")
        assert not running.done()


async def test_a_checkpoint_that_is_lost_ends_it(engine: Engine, tables: Tables) -> None:
    """Entered again it would be refused for ever."""
    client = engine.client
    await client.start("till", "a")
    with projecting(client, summing()):
        await client.call("till", "a", "add", 1)
        await eventually(lambda: totals(tables) == {"a": 1}, "the checkpoint")
    tables.execute("UPDATE feed SET appended_at = appended_at + interval '1 second'")
    await client.call("till", "a", "add", 2)
    async with asyncio.timeout(30):
        with pytest.raises(FeedTruncated, match="subscriptions move totals beginning"):
            await client.project(summing())


async def test_it_is_built_anew(engine: Engine, tables: Tables) -> None:
    """Moved to the beginning, it clears its table, and reads all again; an empty one too."""
    client, storage = engine.client, engine.node.storage
    await client.start("till", "a")
    await client.call("till", "a", "add", 1)
    with projecting(client, summing()):
        await eventually(lambda: totals(tables) == {"a": 1}, "the first time")
        tables.execute("UPDATE public.totals SET total = 99")
        tables.execute("INSERT INTO public.totals VALUES ('odd', 1)")
        beginning = (await storage.feed_head()).beginning
        await storage.move_subscription("totals", beginning, act=None)
        await eventually(lambda: totals(tables) == {"a": 1}, "the second time")
        await client.remove("till", "a")
        tables.execute("INSERT INTO public.totals VALUES ('odd', 1)")
        beginning = (await storage.feed_head()).beginning
        await storage.move_subscription("totals", beginning, act=None)
        await eventually(lambda: totals(tables) == {}, "without an event")


async def test_two_versions(engine: Engine, tables: Tables) -> None:
    """Each has a place of its own."""
    client = engine.client
    await client.start("till", "a")
    await client.call("till", "a", "add", 1)
    first, second = summing(), Projection("totals", version=2, retries=QUICK)
    tables.execute("CREATE TABLE public.counts (account text PRIMARY KEY, many bigint)")

    @second.on("till", "added")
    async def count(event: FeedEvent, connection: psycopg.AsyncConnection) -> None:
        await connection.execute("INSERT INTO counts VALUES (%s, %s)", (event.process_id, event.event_id))

    def counts() -> list[Any]:
        return [row["many"] for row in tables.execute("SELECT * FROM public.counts")]

    with projecting(client, first), projecting(client, second):
        await eventually(lambda: totals(tables) == {"a": 1} and counts() == [1], "both")
    assert (first.subscription, second.subscription) == ("totals", "totals.v2")


async def test_connections_of_sqlalchemy(engine: Engine, tables: Tables) -> None:
    """By the annotation, as handlers get them."""
    client = engine.client
    one, two = Projection("one", retries=QUICK), Projection("two", retries=QUICK)

    @one.on("till.*")
    @one.on("till")
    async def by_connection(event: FeedEvent, connection: AsyncConnection) -> None:
        await connection.execute(text("INSERT INTO totals VALUES ('one', 1)"))

    @two.on("till")
    async def by_session(event: FeedEvent, session: AsyncSession) -> None:
        await session.execute(text("INSERT INTO totals VALUES ('two', 2)"))

    await client.start("till", "a")
    await client.call("till", "a", "add", 1)
    with projecting(client, one), projecting(client, two):
        await eventually(lambda: totals(tables) == {"one": 1, "two": 2}, "both")


async def test_an_error_shows_no_values(engine: Engine, tables: Tables) -> None:
    """Neither PostgreSQL's detail nor the parameters of SQLAlchemy reach operators and logs."""
    one, two = (Projection(name, retries=QUICK, on_failure="park") for name in ("one", "two"))
    tables.execute("INSERT INTO public.totals VALUES ('secret', 1)")

    @one.on("till", "added")
    async def by_psycopg(event: FeedEvent, connection: Any) -> None:
        await connection.execute("INSERT INTO totals VALUES (%s, 1)", ("secret",))

    @two.on("till", "added")
    async def by_sqlalchemy(event: FeedEvent, connection: AsyncConnection) -> None:
        await connection.execute(text("INSERT INTO totals VALUES (:account, 1)"), {"account": "secret"})

    client, storage = engine.client, engine.node.storage
    await client.start("till", "a")
    await client.call("till", "a", "add", 1)
    with projecting(client, one), projecting(client, two):
        await eventually(
            lambda: tables.execute("SELECT count(*) AS many FROM parked")[0]["many"] == 2, "both are parked"
        )
    found = await storage.parked_entries(None, behind=0, limit=9)
    said = 'UniqueViolation: duplicate key value violates unique constraint "totals_pkey"'
    assert [each.error for each in found] == [said, said]


async def test_a_function_that_hangs(engine: Engine, tables: Tables) -> None:
    """It is ended after its time, and tried again."""
    projection = Projection("totals", retries=QUICK, timeout=timedelta(seconds=1))
    hangs = iter([True, True])

    @projection.on("till", "added")
    async def added(event: FeedEvent, connection: Any) -> None:
        await connection.execute(_ADD, (event.process_id, event.payload["amount"]))
        if next(hangs, False):
            await asyncio.sleep(60)

    client = engine.client
    await client.start("till", "a")
    await client.call("till", "a", "add", 1)
    with projecting(client, projection):
        await eventually(lambda: totals(tables) == {"a": 1}, "the third time")


def test_bad_projections() -> None:
    """Each mistake is named where it is made."""
    with pytest.raises(InvalidRequest, match="has no function"):
        App([till], projections=[Projection("empty")])
    with pytest.raises(InvalidRequest, match="must be a list of Projection"):
        App([till], projections=[till])  # type: ignore[list-item]
    with pytest.raises(InvalidRequest, match="two projections have the same name: totals"):
        App([till], projections=[summing(), summing()])
    with pytest.raises(InvalidRequest, match="start must be latest, beginning"):
        Engine("postgresql://nowhere", App([till], projections=[summing(start="begin")]))
    with pytest.raises(InvalidRequest, match="version must be"):
        Projection("x", version=0)
    with pytest.raises(InvalidRequest, match="on_failure must be"):
        Projection("x", on_failure="drop")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="timeout must be"):
        Projection("x", timeout=timedelta())
    projection = Projection("x")
    with pytest.raises(InvalidRequest, match="kind must be one of"):
        projection.on("till", kind="gone")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="removed has no name"):
        projection.on("till", "added", kind="removed")
    with pytest.raises(InvalidRequest, match="namespace"):
        projection.on("")

    async def odd(event: FeedEvent) -> None:
        """Take too little."""

    def plain(event: FeedEvent, connection: Any) -> None:
        """Be no async function."""

    async def wrong(event: FeedEvent, connection: int) -> None:
        """Ask for no connection."""

    async def other(event: FeedEvent, connection: AsyncSession) -> None:
        """Ask for another connection than the rest."""

    async def good(event: FeedEvent, connection: Any) -> None:
        """Be as it should."""

    for function, said in (
        (odd, r"odd must take \(event, connection\)"),
        (plain, "plain must be an async function"),
        (wrong, "must be annotated with a type of connection"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            projection.on("till")(function)  # type: ignore[arg-type]
    projection.on("till")(good)
    with pytest.raises(InvalidRequest, match="get the same connection"):
        projection.on("till")(other)
