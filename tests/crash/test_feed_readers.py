"""OS processes that read the feed are frozen or die, and nothing is skipped, nor committed twice."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from multiprocessing.process import BaseProcess

import pytest

from progressor import Client, Engine, FeedEvent, Subscription
from tests.crash import points, readers
from tests.crash.ledger import CLIENT_OPTIONS, OPTIONS
from tests.crash.readers import NAMES, app, ledger, read, till
from tests.feed.starts import FIRST
from tests.support import Tables, check_invariants, eventually

MORTALS = multiprocessing.get_context("forkserver")
MORTALS.set_forkserver_preload([readers.__name__])
ROUNDS = 4
ALL = {name: list(range(1, ROUNDS + 1)) for name in NAMES}
EVENTS = {(name, n) for name in NAMES for n in ALL[name]}
# A reader's batches are of so many.
_BATCH = 2


@pytest.fixture
async def worked(dsn: str, tables: Tables) -> str:
    """A database with events of several processes, and tables to note what was read; nobody has read."""
    tables.execute(readers.TABLES)
    async with Engine(dsn, [till()], **OPTIONS) as engine:
        for name in NAMES:
            await engine.client.start("till", name)
        await add(engine.client, ROUNDS)
    return dsn


async def add(client: Client, rounds: int) -> None:
    """Have each process emit so many events, of several processes at once."""
    for amount in range(1, rounds + 1):
        await asyncio.gather(*(client.call("till", name, "add", amount) for name in NAMES))


@contextmanager
def playing(role: str, dsn: str, point: str | None = None, nth: int = 1) -> Iterator[BaseProcess]:
    """An OS process in a role, until the end of the block at most."""
    mortal = MORTALS.Process(target=readers.run, args=(role, point, nth, dsn))
    mortal.start()
    try:
        yield mortal
    finally:
        mortal.kill()
        mortal.join()
        mortal.close()


async def die(role: str, dsn: str, point: str, nth: int) -> None:
    """Run an OS process until it dies at the point; anything else is an error of the test."""
    with playing(role, dsn, point, nth) as mortal:
        await asyncio.to_thread(mortal.join, 60)
        assert mortal.exitcode == points.DEAD, f"the point {point} was not reached"


@asynccontextmanager
async def reading(dsn: str, reader: str, events: Subscription) -> AsyncIterator[None]:
    """A reader of this OS process in the block."""
    task = asyncio.create_task(read(dsn, reader, events))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def noted(tables: Tables, *, reader: str | None = None) -> list[tuple[str, int]]:
    """The events that were noted, in order, by one reader or by all."""
    rows = tables.execute("SELECT * FROM public.noted ORDER BY at")
    return [(row["account"], row["n"]) for row in rows if reader in (None, row["reader"])]


def committed(tables: Tables, *, reader: str | None = None) -> list[tuple[str, int]]:
    """The events whose batches were committed, in order, by one reader or by all."""
    rows = tables.execute("SELECT * FROM public.committed ORDER BY at")
    return [(row["account"], row["n"]) for row in rows if reader in (None, row["reader"])]


def end_leases(tables: Tables) -> None:
    """Let what is dead have died long ago."""
    tables.execute("UPDATE subscription_readers SET seen_at = now() - interval '1 day'")


def by_account(seen: list[tuple[str, int]]) -> dict[str, list[int]]:
    return {name: [n for account, n in seen if account == name] for name in NAMES}


async def test_a_frozen_reader(worked: str, tables: Tables) -> None:
    """It loses its slices to another one, cannot commit once it goes on, and then has its share again."""
    async with Client(worked, **CLIENT_OPTIONS) as client:
        # The first reader fixes the number of slices.
        async with ledger(client, slices=4):
            pass
        with playing("frozen reader", worked) as frozen:
            await eventually(lambda: noted(tables), "the first batch")
            async with (
                ledger(client, lease_age=3 * readers.SHORT) as winner,
                reading(worked, "winner", winner),
            ):
                await eventually(lambda: winner.slices == [0, 1, 2, 3], "all slices")
                await eventually(lambda: by_account(sorted(committed(tables))) == ALL, "all events")
                assert committed(tables, reader="frozen reader") == []
                os.kill(frozen.pid or 0, signal.SIGCONT)
                await eventually(lambda: tables.execute("SELECT reader FROM public.lost"), "the refusal")
                await eventually(lambda: len(winner.slices) == 2, "its share")
                async with Engine(worked, [till()], **OPTIONS) as engine:
                    await add(engine.client, ROUNDS)
                every = {name: list(range(1, 2 * ROUNDS + 1)) for name in NAMES}
                await eventually(lambda: by_account(sorted(committed(tables))) == every, "each event once")
                assert committed(tables, reader="frozen reader")
                assert {"reader": "frozen reader"} in tables.execute("SELECT reader FROM public.lost")
    check_invariants(worked)


@pytest.mark.parametrize(
    ("point", "nth"), [*((each, 4) for each in points.SUBSCRIPTION_READER), ("commit_slice:before", 1)]
)
async def test_a_reader_dies_between_effect_and_commit(
    worked: str, tables: Tables, point: str, nth: int
) -> None:
    """The next one goes on behind the checkpoint: what was not committed comes again, in order."""
    await die("reader", worked, point, nth)
    before = noted(tables)
    end_leases(tables)
    async with (
        Client(worked, **CLIENT_OPTIONS) as client,
        ledger(client) as events,
        reading(worked, "next", events),
    ):
        await eventually(lambda: set(noted(tables)) == EVENTS, "all events")
    after = noted(tables, reader="next")
    # Of an answer that was not read nobody knows whether it was sent.
    kept = {"before": {nth - 1}, "sent": {nth - 1, nth}, "after": {nth}}[point.partition(":")[2]]
    assert any(by_account([*before[: _BATCH * each], *after]) == ALL for each in kept)
    check_invariants(worked)


@pytest.mark.parametrize("point", points.PROJECTING)
async def test_an_engine_dies_in_the_transaction_of_a_projection(
    worked: str, tables: Tables, point: str
) -> None:
    """Its rows are those of the events, each counted once and in order, whoever dies when."""
    # The first transaction clears.
    await die("projecting engine", worked, point, nth=3 if point == "project:after" else 2)

    def rows() -> dict[str, tuple[int, list[int]]]:
        found = tables.execute("SELECT * FROM public.projected")
        return {row["account"]: (row["total"], row["numbers"]) for row in found}

    end_leases(tables)
    whole = {name: (sum(ALL[name]), ALL[name]) for name in NAMES}
    # The first part has ten events.
    part = {"a": whole["a"], "b": whole["b"], "c": (sum(ALL["c"][:2]), ALL["c"][:2])}
    assert rows() in {"commit:sent": ({}, part), "commit:after": (part,)}.get(point, ({},))
    async with Engine(worked, app(), **OPTIONS) as engine:
        await add(engine.client, 2)
        numbers = list(range(1, ROUNDS + 3))
        every = {name: (sum(ALL[name]) + 3, numbers) for name in NAMES}
        await eventually(lambda: rows() == every, "the rows of the events")
    check_invariants(worked)


@pytest.mark.parametrize(
    ("role", "point"), [*(("tail", each) for each in points.NUMBERING), ("collector", "number_feed:sent")]
)
async def test_an_os_process_dies_that_numbers_the_feed(
    worked: str, tables: Tables, role: str, point: str
) -> None:
    """Others give the positions: without a gap, each once, the same for all."""
    async with Client(worked, **CLIENT_OPTIONS) as client:
        await die(role, worked, point, 1)
        seen = await asyncio.gather(*(tail(client) for _ in range(3)))
    assert seen[0] == seen[1] == seen[2]
    assert by_account([(each.process_id, each.event_id or 0) for each in seen[0]]) == ALL
    (feed,) = tables.execute("SELECT count(*) AS rows, max(position) AS last FROM feed")
    assert feed["rows"] == feed["last"]
    check_invariants(worked)


async def tail(client: Client) -> list[FeedEvent]:
    """All events of the feed, as one more reader gets them."""
    events = client.subscribe(after=FIRST)
    async with asyncio.timeout(30):
        return [await anext(events) for _ in EVENTS]
