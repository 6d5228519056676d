"""A process dies at every named point, and nothing is lost or doubled.

Each test kills a real process with os._exit at one point, lets another process go on without any help,
and then compares answers, balances and histories to the last event; the tables' invariants must hold.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

import psycopg
import pytest

from progressor import Bulk, Client, Engine, ProcessNotFound, Retention, SetTimer
from progressor.model import TaskType
from tests.crash import child, points
from tests.crash.ledger import (
    ACCOUNTS,
    BOOK,
    CLIENT_OPTIONS,
    DEPOSITS,
    NAMESPACE,
    OPTIONS,
    SPOILT,
    account,
    deposit,
    redo_all,
    spoil,
    use_all,
)
from tests.support import check_invariants

ANSWERS = [list(accumulate(DEPOSITS))] * len(ACCOUNTS)
TIMER = "t"
HOUR = timedelta(hours=1)
PROJECT = Path(__file__).parents[2]
# Each is forked from a process that has imported all they need, and has done nothing else.
MORTALS = multiprocessing.get_context("forkserver")
MORTALS.set_forkserver_preload([child.__name__])

# Each point is an OS process that dies, and another one that goes on.
pytestmark = pytest.mark.share(3)


@pytest.fixture
async def known(dsn: str) -> str:
    """A database whose namespace is known, with one timer due, and no worker."""
    async with Engine(dsn, [account()], **OPTIONS):
        pass
    async with Client(dsn, **CLIENT_OPTIONS) as client:
        await client.put(
            NAMESPACE,
            TIMER,
            state={"balance": 0, "ticks": 0},
            events=[{"name": "opened"}],
            action=SetTimer(after=timedelta(0)),
        )
    return dsn


async def die(role: str, point: str, dsn: str, *, nth: int = 1, archive: str | None = None) -> None:
    """Run a process until it dies at the point; anything else is an error of the test."""
    mortal = MORTALS.Process(target=child.run, args=(role, point, nth, dsn, archive))
    mortal.start()
    try:
        await asyncio.to_thread(mortal.join, 60)
        assert mortal.exitcode == points.DEAD, f"the point {point} was not reached"
    finally:
        mortal.kill()
        mortal.join()
        mortal.close()


async def settled(client: Client, account_id: str, ticks: int = 1) -> Counter[str | None]:
    """The events of an account by name, once its timer has fired."""
    async with asyncio.timeout(30):
        while True:
            process = await client.get(NAMESPACE, account_id)
            if process.state["ticks"] >= ticks:
                break
            await asyncio.sleep(0.02)
    assert [event.event_id for event in process.history] == list(range(1, process.last_event_id + 1))
    assert process.state == {
        "balance": 0 if account_id == TIMER else sum(DEPOSITS),
        "ticks": 1,
    }
    return Counter(event.name for event in process.history)


async def accepted(client: Client, kind: TaskType, accounts: Iterable[str]) -> None:
    """Return once each of these accounts has a task of this kind."""
    async with asyncio.timeout(30):
        for account_id in accounts:
            while not await _has(client, kind, account_id):  # noqa: ASYNC110 - there is no event to wait on
                await asyncio.sleep(0.02)


async def _has(client: Client, kind: TaskType, account_id: str) -> bool:
    try:
        trace = await client.trace(NAMESPACE, account_id)
    except ProcessNotFound:
        return False
    return any(entry.task_type is kind for entry in trace)


async def check(dsn: str, *, accounts: bool = True) -> None:
    """Every account has exactly its events, and the tables hold together."""
    async with Client(dsn, **CLIENT_OPTIONS) as client:
        assert await settled(client, TIMER) == {"opened": 1, "ticked": 1}
        for account_id in ACCOUNTS if accounts else ():
            events = await settled(client, account_id)
            assert events == {"opened": 1, "deposited": len(DEPOSITS), "ticked": 1}
    check_invariants(dsn)


@pytest.mark.parametrize("point", points.WORKER)
async def test_a_worker_dies(known: str, point: str) -> None:
    """Another worker goes on with what a dead one held; its callers get every answer, once."""
    async with Client(known, **CLIENT_OPTIONS) as client:
        asking = asyncio.create_task(use_all(client))
        await die("worker", point, known)
        async with Engine(known, [account()], **OPTIONS):
            assert await asking == ANSWERS
            await check(known)


@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize(
    ("role", "point"),
    [
        *(("fusing worker, at once", point) for point in points.FUSING_AT_ONCE),
        *(("fusing worker", point) for point in points.FUSING_WORKER),
    ],
)
async def test_a_worker_dies_between_claim_and_commit(known: str, role: str, point: str, nth: int) -> None:
    """What it had not committed waits for another worker; what it had is there once."""
    async with Client(known, **CLIENT_OPTIONS) as client:
        asking = asyncio.create_task(use_all(client))
        await die(role, point, known, nth=nth)
        waits = not role.endswith("at once")
        async with Engine(known, [account(deposits_wait=waits)], **{**OPTIONS, "fuse": "always"}):
            assert await asking == ANSWERS
            await check(known)


@pytest.mark.parametrize(
    ("role", "point"),
    [
        *(("worker", point) for point in points.RECURRING),
        *(("fusing worker, at once", point) for point in points.RECURRING_FUSED),
    ],
)
async def test_a_worker_dies_in_the_step_of_a_recurring_timer(dsn: str, role: str, point: str) -> None:
    """Each nominal time is run, and none twice: the step that fires arms the next in its commit."""
    async with Engine(dsn, [account()], **OPTIONS):
        pass
    since, state = datetime.now(UTC) - 5.5 * HOUR, {"balance": 0, "ticks": 0}
    async with Client(dsn, **CLIENT_OPTIONS) as client:
        timer = SetTimer(every=HOUR, at=since, catch_up="all")
        await client.put(NAMESPACE, TIMER, state=state, action=timer)
        # All six run one after the other in one slot: the third is in the midst of them. Only the first is
        # claimed.
        is_claim = role != "worker" or point.startswith("search_timers")
        await die(role, point, dsn, nth=1 if is_claim else 3)
        async with Engine(dsn, [account()], **OPTIONS), asyncio.timeout(30):
            while (found := await client.get(NAMESPACE, TIMER)).last_event_id < 6:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        nominals = [event.payload["nominal"] for event in found.history]
        assert [datetime.fromisoformat(each) for each in nominals] == [since + n * HOUR for n in range(6)]
        assert found.timers[""].due == since + 6 * HOUR
    check_invariants(dsn)


@pytest.mark.parametrize("nth", [1, 5])
@pytest.mark.parametrize("point", points.OWN_SQL)
async def test_a_worker_dies_with_rows_of_its_handlers(known: str, point: str, nth: int) -> None:
    """A deposit and the row that its handler wrote are there once, both or neither at any moment."""
    with psycopg.connect(known, autocommit=True) as admin:
        admin.execute("CREATE TABLE deposits (account text, amount integer)")
        async with Client(known, **CLIENT_OPTIONS) as client:
            asking = asyncio.create_task(use_all(client))
            await die("writing worker", point, known, nth=nth)
            async with Engine(known, [account(writes=True)], **OPTIONS):
                assert await asking == ANSWERS
                await check(known)
        found = admin.execute("SELECT account, amount FROM deposits ORDER BY 1, 2").fetchall()
    assert found == [(each, amount) for each in ACCOUNTS for amount in sorted(DEPOSITS)]


async def all_noted(client: Client) -> list[list[Any]]:
    """The deposits in the book, once there are as many as were made."""
    async with asyncio.timeout(30):
        while True:
            book = await client.get(NAMESPACE, BOOK)
            if book.last_event_id >= len(ACCOUNTS) * len(DEPOSITS):
                return [event.payload["deposit"] for event in book.history]
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", points.SENDING_WORKER)
async def test_a_worker_dies_with_its_messages(known: str, point: str, nth: int) -> None:
    """Each deposit sends one message, which becomes one step of the book, in the order of its account."""
    sender = account(sends=True)
    async with Client(known, **CLIENT_OPTIONS) as client:
        await client.put(NAMESPACE, BOOK, state={"balance": 0, "ticks": 0})
        asking = asyncio.create_task(use_all(client))
        await die("sending worker", point, known, nth=nth)
        check_invariants(known)
        async with Engine(known, [sender], **OPTIONS):
            assert await asking == ANSWERS
            await check(known)
            noted = await all_noted(client)
    for account_id in ACCOUNTS:
        assert [amount for name, amount in noted if name == account_id] == list(DEPOSITS)
    assert len(noted) == len(ACCOUNTS) * len(DEPOSITS)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", points.CROWDED_WORKER)
async def test_a_worker_dies_between_two_ways_to_save(known: str, point: str, nth: int) -> None:
    """Of the inits of one moment, those on which calls wait are saved later: the others once, these too."""
    async with Client(known, **CLIENT_OPTIONS) as client:
        asking = asyncio.create_task(use_all(client))
        await accepted(client, TaskType.INIT, ACCOUNTS)
        early = asyncio.create_task(deposit(client, "b", DEPOSITS[0]))
        await accepted(client, TaskType.CALL, "b")
        await die("worker", point, known, nth=nth)
        async with Engine(known, [account()], **OPTIONS):
            assert (await asking, await early) == (ANSWERS, DEPOSITS[0])
            await check(known)


@pytest.mark.parametrize("point", points.ENGINE_CLIENT)
async def test_an_engine_dies_with_its_own_requests(known: str, point: str) -> None:
    """Who asks again under the same keys gets the answers of what had been done, and the rest is done."""
    await die("engine client", point, known, nth=1)
    async with Engine(known, [account()], **OPTIONS) as engine:
        assert await use_all(engine.client) == ANSWERS
        await check(known)


@pytest.mark.parametrize("point", points.FUSED_AT_ONCE)
async def test_an_engine_dies_behind_the_locks_of_what_ends_at_once(known: str, point: str) -> None:
    """What was committed was done with its acceptance, and is not done again; the rest was not done."""
    # The starts share one transaction; of the deposits, the first are done when a later one dies.
    nth = {"fused_look": 2, "fused_save_timeless": 3}.get(point.partition(":")[0], len(ACCOUNTS) + 2)
    await die("fused client, at once", point, known, nth=nth)
    async with Engine(known, [account()], **{**OPTIONS, "fuse": "always"}) as engine:
        assert await use_all(engine.client) == ANSWERS
        await check(known)


@pytest.mark.parametrize("point", points.FUSED_CLIENT)
async def test_an_engine_dies_behind_the_locks_of_its_requests(known: str, point: str) -> None:
    """What was run and not committed was not done; what was committed as running another one runs."""
    await die("fused client", point, known, nth=1 if point.startswith("fused_make") else 2)
    async with Engine(known, [account(deposits_wait=True)], **{**OPTIONS, "fuse": "always"}) as engine:
        assert await use_all(engine.client) == ANSWERS
        await check(known)


@pytest.mark.parametrize("how", ["", ", at once"], ids=["goes on", "at once"])
@pytest.mark.parametrize("point", points.DOUBTFUL_CLIENT)
async def test_an_engine_dies_in_doubt(known: str, point: str, how: str) -> None:
    """Its deposit was committed, and it dies before it knows: what had ended has ended, the rest is run."""
    await die(f"doubtful client{how}", point, known)
    served = account(deposits_wait=not how)
    async with Engine(known, [served], **{**OPTIONS, "fuse": "always"}) as engine:
        assert await use_all(engine.client) == ANSWERS
        await check(known)


@pytest.mark.parametrize("point", points.CLIENT)
async def test_a_client_dies(known: str, point: str) -> None:
    """Another client that asks under the same keys gets the same answers, and nothing runs twice."""
    async with Engine(known, [account()], **OPTIONS):
        await die("client", point, known, nth=1)
        async with Client(known, **CLIENT_OPTIONS) as client:
            assert await use_all(client) == ANSWERS
        await check(known)


@pytest.mark.parametrize("served", [True, False], ids=["served", "unserved"])
@pytest.mark.parametrize("point", points.REDOING_CLIENT)
async def test_a_client_dies_that_redoes(known: str, point: str, served: bool) -> None:
    """Another client that redoes the same requests gets their answers, and each is run again once."""
    async with Client(known, **CLIENT_OPTIONS) as client:
        async with Engine(known, [account()], **OPTIONS):
            await use_all(client)
            if served:
                await die("redoing client", point, known)
        if not served:
            await die("redoing client", point, known)
        async with Engine(known, [account()], **OPTIONS):
            assert await redo_all(client) == [sum(DEPOSITS) + DEPOSITS[0]] * len(ACCOUNTS)
        for account_id in ACCOUNTS:
            trace = await client.trace(NAMESPACE, account_id)
            assert [entry.redoes for entry in trace if entry.redoes is not None] == [
                next(entry.task_id for entry in trace if entry.name == "deposit")
            ]
    check_invariants(known)


@pytest.mark.parametrize("point", points.SCANNER)
async def test_a_scanner_dies(known: str, point: str) -> None:
    """A scanner holds nothing: without it, work goes on."""
    async with Client(known, **CLIENT_OPTIONS) as client:
        asking = asyncio.create_task(use_all(client))
        # A worker that is not there any more: the scanner has somebody to wake.
        await die("worker", "perform:before", known)
        await die("scanner", point, known)
        async with Engine(known, [account()], **OPTIONS):
            assert await asking == ANSWERS
            await check(known)


@pytest.mark.parametrize("point", points.COLLECTOR)
async def test_a_zombie_collector_dies(known: str, point: str) -> None:
    """A collector that dies while it buries leaves the dead as they were, or buried: never half."""
    async with Client(known, **CLIENT_OPTIONS) as client:
        asking = asyncio.create_task(use_all(client))
        await die("worker", "perform:before", known)
        await die("collector", point, known)
        check_invariants(known)
        async with Engine(known, [account()], **OPTIONS):
            assert await asking == ANSWERS
            await check(known)


@pytest.mark.parametrize("point", points.SWEEPER)
async def test_a_retention_sweeper_dies(known: str, point: str) -> None:
    """What it deleted and how far it came are committed together; another one deletes the rest."""
    async with Engine(known, [account()], zombie_collector=False, **OPTIONS) as engine:
        assert await use_all(engine.client) == ANSWERS
        await check(known)
        await engine.client.set_retention(NAMESPACE, Retention(tasks=HOUR, events=2))
    with psycopg.connect(known) as own:
        own.execute("UPDATE progressor.tasks SET finished_time = finished_time - interval '2 hours'")
    await die("collector", point, known)
    check_invariants(known)
    async with Engine(known, [account()], **OPTIONS) as engine:
        async with asyncio.timeout(30):
            while (await engine.client.retention(NAMESPACE)).ended_at is None:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        for name in (TIMER, *ACCOUNTS):
            assert await engine.client.trace(NAMESPACE, name) == []
            process = await engine.client.get(NAMESPACE, name)
            assert [each.event_id for each in process.history] == [
                process.last_event_id - 1,
                process.last_event_id,
            ]
    check_invariants(known)


@pytest.fixture
def redo() -> bool:
    """Whether a bulk runs the requests again that broke the accounts."""
    return False


@pytest.fixture
async def bulk(known: str, simple: bool, redo: bool) -> Bulk:
    """A bulk for the spoilt accounts, some a second; two more broke after it was made."""
    async with Engine(known, [account()], zombie_collector=False, **OPTIONS) as engine:
        await spoil(engine.client, *SPOILT, "again")
        await engine.client.start(NAMESPACE, "later", {"tick_ms": 3_600_000}, idempotency_key="open-later")
        made = await engine.client.repair_all(NAMESPACE, simple=simple, redo=redo, rate=3)
        await engine.client.simple_repair(NAMESPACE, "again")
        await spoil(engine.client, "again", "later")
    return made


async def finished(client: Client, bulk: Bulk) -> Bulk:
    async with asyncio.timeout(60):
        while True:
            found = await client.bulk(bulk.bulk_id)
            if found.status.is_final:
                return found
            await asyncio.sleep(0.02)


async def begins(client: Client, bulk: Bulk, repairs: int) -> None:
    """Wait until a bulk has begun so many."""
    async with asyncio.timeout(60):
        while True:
            if (await client.bulk(bulk.bulk_id)).begun >= repairs:
                return
            await asyncio.sleep(0.02)


async def check_bulk(dsn: str, bulk: Bulk) -> None:
    """Each spoilt account was repaired once, those that broke later were not touched, all is counted."""
    async with Client(dsn, **CLIENT_OPTIONS) as client:
        found = await finished(client, bulk)
        assert (found.status, found.begun, found.repaired) == ("finished", len(SPOILT), len(SPOILT))
        assert (found.passed_by, found.under_way, found.last_error) == (0, 0, None)
        for name in SPOILT:
            process = await client.get(NAMESPACE, name)
            repairs = [task for task in await client.trace(NAMESPACE, name) if task.task_type == "repair"]
            assert (process.status, len(repairs)) == ("running", 1)
            assert [event.name for event in process.history].count("mended") == (not bulk.simple)
        for name, count in (("again", 1), ("later", 0)):
            repairs = [task for task in await client.trace(NAMESPACE, name) if task.task_type == "repair"]
            assert ((await client.get(NAMESPACE, name)).status, len(repairs)) == ("error", count)
    check_invariants(dsn)


@pytest.mark.parametrize(
    ("point", "simple"),
    [
        *((point, False) for point in points.BULK_RUNNER),
        *((point, True) for point in points.BULK_RUNNER if point.startswith(("choose_", "note_"))),
    ],
)
async def test_a_bulk_runner_dies(known: str, bulk: Bulk, point: str) -> None:
    """In the middle of a bulk: what it had begun is counted, another one begins the rest, nothing twice."""
    await die("collector", point, known, nth=2)
    async with Client(known, **CLIENT_OPTIONS) as client:
        found = await client.bulk(bulk.bulk_id)
        assert 0 < found.begun < len(SPOILT)
    check_invariants(known)
    async with Engine(known, [account()], **OPTIONS):
        await check_bulk(known, bulk)


@pytest.mark.parametrize(("simple", "redo"), [(True, True)])
@pytest.mark.parametrize("point", points.REDOING_BULK_RUNNER)
async def test_a_bulk_runner_dies_that_redoes(known: str, bulk: Bulk, point: str) -> None:
    """Whatever it had done: each request that broke an account is run again once, and no other."""
    await die("collector", point, known, nth=2)
    check_invariants(known)
    async with Engine(known, [account(spoils=False)], **OPTIONS) as engine:
        await check_bulk(known, bulk)
        assert (await engine.client.bulk(bulk.bulk_id)).redone == len(SPOILT)
        for name in SPOILT:
            trace = await engine.client.trace(NAMESPACE, name)
            (spoilt,) = [task for task in trace if task.redone_by is not None]
            (redone,) = [task for task in trace if task.redoes is not None]
            assert (spoilt.name, spoilt.status, redone.redoes) == ("spoil", "error", spoilt.task_id)
            await engine.client.result(NAMESPACE, name, redone.task_id)
            events = [event.name for event in (await engine.client.get(NAMESPACE, name)).history]
            assert events == ["opened", "spent"]
        assert (await engine.client.get(NAMESPACE, "later")).status == "error"


@pytest.mark.parametrize("simple", [False, True], ids=["handler", "simple"])
async def test_bulk_runners_are_killed(known: str, bulk: Bulk) -> None:
    """The service itself, by SIGKILL, again and again; two run at the end."""
    async with Client(known, **CLIENT_OPTIONS) as client:
        for _ in range(2):
            before = (await client.bulk(bulk.bulk_id)).begun
            async with zombie_collector(known):
                # A service that was killed late has begun them all.
                await begins(client, bulk, min(before + 1, len(SPOILT)))
        async with (
            Engine(known, [account()], zombie_collector=False, **OPTIONS),
            zombie_collector(known),
            zombie_collector(known),
        ):
            await check_bulk(known, bulk)


@asynccontextmanager
async def zombie_collector(dsn: str) -> AsyncIterator[None]:
    """The service of its own, as it is run; it is killed."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PROGRESSOR_")}
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "progressor", "zombie-collector", "--log-level", "error"),
        env={**plain, "PROGRESSOR_DATABASE_URL": dsn},
        cwd=PROJECT,
    )
    try:
        yield
        assert service.returncode is None, "it ended by itself"
    finally:
        with suppress(ProcessLookupError):
            service.kill()
        await service.wait()


@pytest.mark.parametrize("point", points.STOP)
async def test_a_worker_dies_while_it_stops(known: str, point: str) -> None:
    """What a stopping worker was about to hand back is not lost with it."""
    await die("stop", point, known)
    async with Engine(known, [account()], **OPTIONS):
        await check(known, accounts=False)
