"""The bulk runner: its rounds and its pace, whom it tells, what it shows, how it survives failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from prometheus_client import REGISTRY

from progressor import metrics
from progressor.bulks import Bulk, BulkStatus
from progressor.errors import StorageUnavailable
from progressor.loggers import message_of
from progressor.services.bulk_runner import BulkRunner
from progressor.storage.admin.bulks import NewBulk
from progressor.storage.operations import Storage
from tests.engine.clock import PAST, start_at
from tests.support import (
    NS,
    SECOND,
    LossyConnections,
    Tables,
    claim_calls,
    eventually,
    fail,
    hold,
    request,
    resume,
    save,
)

HOUR = timedelta(hours=1)
FAST = timedelta(milliseconds=1)
OTHER = "shop.invoice"


class Told:
    """Stands where the node would: whom it rang here, and whom it woke elsewhere."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.rung: list[tuple[str, str]] = []
        self.woken: list[tuple[str, str]] = []

    def ring(self, namespace: str, kind: str) -> None:
        self.rung.append((namespace, kind))

    def wake(self, namespace: str, kind: str) -> None:
        self.woken.append((namespace, kind))


@pytest.fixture(autouse=True)
def nothing_shown() -> None:
    """By no test before this one."""
    for each in (metrics.BULKS_RUNNING, metrics.BULK_STILL):
        each.clear()


@pytest.fixture
def told(storage: Storage) -> Told:
    return Told(storage)


def runner_of(told: Any, *, interval: timedelta = HOUR) -> BulkRunner:
    return BulkRunner(told, interval=interval)


async def broken(storage: Storage, *names: str, namespace: str = NS) -> None:
    for name in names:
        await start_at(storage, PAST, name, namespace=namespace)
        step = await hold(storage, request(name, namespace=namespace), now=PAST)
        await save(storage, step, fail(), now=PAST)


async def make(
    storage: Storage, *, namespace: str = NS, simple: bool = True, pace: timedelta = FAST, key: str = "key"
) -> Bulk:
    item = NewBulk(namespace, None, None, simple, None, b"hash", f"{namespace} {key}", b"bulk", pace)
    return (await storage.make_bulk(item)).bulk


async def found(storage: Storage, bulk: Bulk) -> Bulk:
    again = await storage.bulk(bulk.bulk_id)
    assert again is not None
    return again


def gauge(what: str, namespace: str = NS) -> float | None:
    return REGISTRY.get_sample_value(f"progressor_{what}", {"prg_namespace": namespace})


def counted(outcome: str) -> float:
    labels = {"prg_namespace": NS, "outcome": outcome}
    return REGISTRY.get_sample_value("progressor_bulk_repairs_total", labels) or 0.0


def failures() -> float:
    labels = {"part": "bulk runner"}
    return REGISTRY.get_sample_value("progressor_background_failures_total", labels) or 0.0


async def test_nothing_to_do(told: Told) -> None:
    """Without a bulk a round shows and tells nothing, and the next one can wait."""
    assert await runner_of(told).run_once() is None
    assert (gauge("bulks_running"), told.rung, told.woken) == (None, [], [])


@pytest.mark.parametrize(
    ("simple", "kind"), [(False, "calls"), (True, "timers")], ids=["handler", "simple"]
)
async def test_whom_it_tells(storage: Storage, told: Told, simple: bool, kind: str) -> None:
    """Workers hear of what a round began, here and elsewhere; a round that began nothing is silent."""
    await broken(storage, "p1", "p2")
    bulk = await make(storage, simple=simple, pace=HOUR)
    before = counted("begun")
    runner = runner_of(told)
    await runner.run_once()
    assert told.rung == told.woken == [(NS, kind)]
    assert counted("begun") == before + 1
    await runner.run_once()
    assert len(told.rung) == 1
    assert (await found(storage, bulk)).begun == 1


async def test_what_became_of_its_repairs(
    storage: Storage, told: Told, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """The round after a repair has ended counts it; that of the last one says that the bulk ended."""
    caplog.set_level(logging.INFO, "progressor.bulk_runner")
    await broken(storage, "p1")
    await make(storage, simple=False)
    runner = runner_of(told)
    await runner.run_once()
    (step,) = await claim_calls(storage)
    await save(storage, step, resume())
    before = counted("repaired")
    tables.execute("UPDATE bulks SET next_at = now()")
    assert await runner.run_once() is None
    assert counted("repaired") == before + 1
    (said,) = caplog.records
    assert (message_of(said), said.__dict__["status"], said.__dict__["repaired"]) == (
        "bulk ended",
        "finished",
        1,
    )


async def test_the_pace_is_kept_by_whoever_runs_it(storage: Storage, told: Told) -> None:
    """A round says when the next one is due; a runner that comes in between begins nothing."""
    await broken(storage, "p1", "p2", "p3")
    bulk = await make(storage, pace=HOUR)
    due_in = await runner_of(told).run_once()
    assert due_in is not None
    assert HOUR - 10 * SECOND < due_in <= HOUR
    for _ in range(3):
        due_in = await runner_of(told).run_once()
        assert due_in is not None
        assert due_in > HOUR - 10 * SECOND
    assert (await found(storage, bulk)).begun == 1


async def test_it_sleeps_no_longer_than_its_interval(
    storage: Storage, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between rounds it waits until one is due, and looks for new bulks at least once in an interval."""
    await broken(storage, "p1", "p2")
    await make(storage, pace=HOUR)
    slept: list[float] = []
    there = asyncio.Event()
    sleep = asyncio.sleep

    async def noted(delay: float) -> None:
        slept.append(delay)
        if len(slept) == 3:
            there.set()
        await sleep(0 if len(slept) < 3 else 3600)

    runner = runner_of(told, interval=SECOND)
    monkeypatch.setattr(asyncio, "sleep", noted)
    runner.start()
    async with asyncio.timeout(30):
        await there.wait()
    monkeypatch.undo()
    await runner.stop()
    assert all(0.9 <= each <= 1.1 for each in slept), slept


async def test_what_somebody_else_runs(storage: Storage, told: Told, tables: Tables, dsn: str) -> None:
    """It is left alone, but shown."""
    await broken(storage, "p1")
    bulk = await make(storage)
    runner = runner_of(told)
    with psycopg.connect(dsn) as own:
        own.execute("SELECT FROM progressor.bulks FOR NO KEY UPDATE")
        assert await runner.run_once() is None
    assert (told.woken, gauge("bulks_running")) == ([], 1)
    assert (await found(storage, bulk)).looked_at == 0


async def test_bulks_are_shown(storage: Storage, told: Told) -> None:
    """By namespace, whoever runs them; one that has ended is not, nor any by a runner that has stopped."""
    await storage.register_namespace(OTHER, options={}, schemas={})
    await broken(storage, "p1", "p2")
    first, second = await make(storage, pace=HOUR), await make(storage, pace=HOUR, key="second")
    await make(storage, namespace=OTHER)
    runner, another = runner_of(told), runner_of(told)
    await runner.run_once()
    assert (gauge("bulks_running"), gauge("bulks_running", OTHER)) == (2, 1)
    while len(await storage.running_bulks()) > 1:
        await runner.run_once()
    for each in (first, second):
        await storage.stop_bulk(each.bulk_id)
    await runner.run_once()
    assert (gauge("bulks_running"), gauge("bulk_still_ms", OTHER)) == (None, None)
    await make(storage, pace=HOUR, key="third")
    await another.run_once()
    assert gauge("bulks_running") == 1
    await another.stop()
    assert (gauge("bulks_running"), gauge("bulk_still_ms")) == (None, None)


async def test_one_that_stands_still(storage: Storage, told: Told, tables: Tables) -> None:
    """It is shown for how long nothing was begun nor ended; what its rate lets it rest does not count."""
    await broken(storage, "p1", "p2")
    await make(storage, simple=False, pace=HOUR)
    runner = runner_of(told)
    await runner.run_once()
    assert (await storage.running_bulks(now=None))[0].still == timedelta()
    # An hour and a half later, and nobody took the repair.
    tables.execute("UPDATE bulks SET still_since = still_since - interval '90 minutes', next_at = now()")
    await runner.run_once()
    still = gauge("bulk_still_ms")
    assert still is not None
    assert 29 * 60_000 < still < 31 * 60_000
    # That round began nothing: its pace is used up, and the repair has not ended.
    await runner.run_once()
    assert gauge("bulk_still_ms") == pytest.approx(still, abs=60_000)
    (step,) = await claim_calls(storage)
    await save(storage, step, resume())
    tables.execute("UPDATE bulks SET next_at = now()")
    for _ in range(2):
        await runner.run_once()
    assert gauge("bulk_still_ms") == 0


async def test_rounds_that_fail_are_seen(
    storage: Storage, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bulk whose rounds fail stands still, and is shown so by the very round that fails."""
    await broken(storage, "p1")
    item = NewBulk(NS, None, None, True, None, b"hash", "key", b"bulk", FAST)
    await storage.make_bulk(item, now=PAST)

    async def failing() -> None:
        raise StorageUnavailable("no right to write")

    monkeypatch.setattr(storage, "run_bulk", failing)
    runner = runner_of(told)
    with pytest.raises(StorageUnavailable):
        await runner.run_once()
    still = gauge("bulk_still_ms")
    assert still is not None
    assert still > 3_600_000


class Away(LossyConnections):
    """No connection at all, while it is told so; `tried` counts."""

    is_away, tried = True, 0

    def acquire(self, patience: float | None = None) -> Any:
        self.tried += 1
        self.early = int(self.is_away)
        return super().acquire()


async def test_the_database_is_away(dsn: str, storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    """It says so once, waits between its rounds, and goes on when the database is back."""
    caplog.set_level(logging.INFO, "progressor.service")
    await broken(storage, "p1", "p2", "p3")
    bulk = await make(storage)
    connections = Away(dsn, limit=1)
    runner = runner_of(Told(Storage(connections, patience=timedelta(0))), interval=20 * FAST)

    def said() -> list[str]:
        return [message_of(each) for each in caplog.records if each.name == "progressor.service"]

    runner.start()
    await eventually(lambda: connections.tried >= 5, "it tries again and again")
    assert said() == ["service round failed, going on"]
    connections.is_away = False
    await until(lambda: found(storage, bulk), lambda bulk: bulk.status is BulkStatus.FINISHED)
    await eventually(lambda: said()[-1] == "service works again", "said")
    await runner.stop()
    await connections.close()
    assert (await found(storage, bulk)).repaired == 3


async def test_a_defect_begins_it_again(
    storage: Storage, told: Told, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is no outage is counted and logged as a failure of its part, and the bulk goes on."""
    await broken(storage, "p1")
    bulk = await make(storage)
    run_bulk = storage.run_bulk

    async def defect() -> Any:
        monkeypatch.setattr(storage, "run_bulk", run_bulk)
        raise KeyError("a defect")

    monkeypatch.setattr(storage, "run_bulk", defect)
    before = failures()
    runner = runner_of(told, interval=20 * FAST)
    runner.start()
    await until(lambda: found(storage, bulk), lambda bulk: bulk.status is BulkStatus.FINISHED)
    await runner.stop()
    assert failures() == before + 1
    (said,) = [each for each in caplog.records if message_of(each) == "background task failed"]
    assert said.__dict__["part"] == "bulk runner"


async def test_a_stop_gives_up_the_round_under_way(
    dsn: str, storage: Storage, tables: Tables, told: Told
) -> None:
    """What waits for a lock is not waited for; nothing of the round is done, and another runner does it."""
    await broken(storage, "p1")
    bulk = await make(storage)
    runner = runner_of(told)
    with psycopg.connect(dsn) as own:
        own.execute("SELECT FROM progressor.processes FOR NO KEY UPDATE")
        runner.start()
        await eventually(tables.waiting, "it waits for the process")
        await runner.stop()
    await eventually(lambda: not tables.in_transaction(), "its connection is gone")
    assert (await found(storage, bulk)).begun == 0
    await runner_of(told).run_once()
    assert (await found(storage, bulk)).repaired == 1


async def until(look: Callable[[], Awaitable[Bulk]], is_so: Callable[[Bulk], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so(await look()):  # noqa: ASYNC110 - there is no event to wait on
            await asyncio.sleep(0.01)
