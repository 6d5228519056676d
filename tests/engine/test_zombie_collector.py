"""The zombie collector: what it takes from whom, and whom it tells."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from progressor.errors import StorageUnavailable
from progressor.loggers import message_of
from progressor.model import TaskStatus
from progressor.services import zombie_collector
from progressor.services.zombie_collector import ZombieCollector
from progressor.storage.operations import Storage
from progressor.storage.values import TaskOutcome, TaskRef
from tests.engine.clock import PAST, start_at
from tests.engine.writes import AGE, Writes
from tests.support import (
    LONG,
    NS,
    OTHER_WORKER,
    SECOND,
    WORKER,
    Tables,
    claim_calls,
    hint_of,
    hold,
    init,
    removed,
    request,
    save,
    start,
    wait,
)

CLIENT = 61
SILENT = (
    "zombie detected: worker 0000000000000001 was last seen at 2020-01-01 00:00:00.000+00:00, "
    "its lease is 30 s"
)


class Told:
    """Stands where Replies would: which callers were told to look."""

    def __init__(self) -> None:
        self.looks: list[TaskRef] = []

    def look(self, ref: TaskRef) -> None:
        self.looks.append(ref)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def writes(tables: Tables) -> Writes:
    """They got through for longer than a lease."""
    writes = Writes(tables)
    writes.get_through(50)
    return writes


def collector_of(storage: Storage, told: Told, writes: Writes) -> ZombieCollector:
    replies: Any = told
    return ZombieCollector(
        storage, replies, writes.witness, interval=60 * SECOND, lease_age=AGE, grace=10 * SECOND
    )


@pytest.fixture
def collector(storage: Storage, told: Told, writes: Writes) -> ZombieCollector:
    return collector_of(storage, told, writes)


def zombies(disposition: str) -> float:
    return REGISTRY.get_sample_value(
        "progressor_zombies_total", {"prg_namespace": NS, "disposition": disposition}
    ) or 0.0  # fmt: skip


def judging() -> float | None:
    return REGISTRY.get_sample_value("progressor_zombie_collector_judging")


def broken() -> float:
    return REGISTRY.get_sample_value("progressor_broken_total", {"prg_namespace": NS}) or 0.0


async def test_nothing_to_collect(collector: ZombieCollector, storage: Storage, told: Told) -> None:
    """A round without zombies tells nobody, and the next one can wait."""
    await start(storage)
    assert await collector.run_once() is None
    assert told.looks == []


async def test_counters_stand_there_before_the_first_zombie(
    collector: ZombieCollector, tables: Tables
) -> None:
    """A collector apart shows them for what is served: the first zombie is an increase."""
    (alive,) = tables.execute("SELECT now() AS at")
    tables.set_worker(seen_at=alive["at"], step_timeouts={"shop.apart": SECOND})
    await collector.run_once()
    for disposition in ("break", "hold", "retry"):
        labels = {"prg_namespace": "shop.apart", "disposition": disposition}
        assert REGISTRY.get_sample_value("progressor_zombies_total", labels) == 0


async def test_the_work_of_a_dead_worker_breaks_its_process(
    collector: ZombieCollector, storage: Storage, tables: Tables, told: Told
) -> None:
    """Under on_zombie=error the task and its process end in error, and every caller is told."""
    tables.set_namespace(on_zombie="error")
    tables.set_worker(seen_at=PAST)
    await start_at(storage, PAST)
    step = await hold(storage, request(reply_to=CLIENT), now=PAST)
    waiting = await wait(storage, request(reply_to=CLIENT), now=PAST)
    before, broken_before = zombies("break"), broken()
    await collector.run_once()
    process = tables.process()
    assert (process["status"], process["detail"]) == ("error", SILENT)
    assert process["corrupted_by"] == step.task.task_id
    assert tables.outline()[1:] == [("call", "error"), ("call", "cancelled")]
    assert told.looks == [hint_of(step.ref, CLIENT), hint_of(waiting, CLIENT)]
    assert await storage.replies([step.ref.key, waiting.key]) == [
        TaskOutcome(TaskStatus.ERROR, error=SILENT),
        TaskOutcome(TaskStatus.CANCELLED, error=SILENT),
    ]
    assert (zombies("break"), broken()) == (before + 1, broken_before + 1)


async def lose_a_step(storage: Storage, tables: Tables) -> None:
    """A worker died at PAST, amid a step."""
    tables.set_namespace(on_zombie="error")
    tables.set_worker(seen_at=PAST)
    await start_at(storage, PAST)
    await hold(storage, request(), now=PAST)


async def test_who_was_just_started_judges_nobody(
    storage: Storage, tables: Tables, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be that nobody could write until now: the workers have a lease from its start on."""
    caplog.set_level(logging.INFO, "progressor.zombie_collector")
    await lose_a_step(storage, tables)
    writes = Writes(tables)
    collector = collector_of(storage, told, writes)
    await collector.run_once()
    writes.held_up(3600)
    for _ in range(3):
        await collector.run_once()
        assert tables.running() is not None
        assert judging() == 0
        writes.get_through(10)
    writes.get_through(10)
    await collector.run_once()
    assert (tables.running(), judging()) == (None, 1)
    messages = [message_of(record) for record in caplog.records]
    assert messages == ["no zombies are collected for a lease", "zombies are collected", "zombie detected"]
    assert caplog.records[0].__dict__["reason"] == "it has just begun to look"
    assert caplog.records[2].__dict__["worker_id"] == "0000000000000001"
    assert "was last seen at 2020-01-01 00:00:00.000+00:00" in caplog.records[2].__dict__["reason"]


async def test_after_a_gap_nobody_is_judged_for_a_lease(
    collector: ZombieCollector, storage: Storage, tables: Tables, writes: Writes
) -> None:
    """While no write gets through nobody can renew a heartbeat, or save a step."""
    await collector.run_once()
    await lose_a_step(storage, tables)
    writes.held_up(20)
    await collector.run_once()
    writes.get_through(20)
    await collector.run_once()
    assert tables.running() is not None
    writes.get_through(20)
    await collector.run_once()
    assert tables.running() is None


async def test_a_round_that_takes_long_is_no_gap(
    collector: ZombieCollector, storage: Storage, tables: Tables, writes: Writes
) -> None:
    """Writes are seen beside the rounds: however far those are apart, each of them judges."""
    await collector.run_once()
    await lose_a_step(storage, tables)
    writes.get_through(3600)
    await collector.run_once()
    assert tables.running() is None


async def test_after_a_round_that_failed_nobody_is_judged_for_a_lease(
    collector: ZombieCollector, storage: Storage, tables: Tables, writes: Writes
) -> None:
    """What the collector could not do, the workers could not do either, perhaps: save a step."""
    await lose_a_step(storage, tables)
    tables.execute("BEGIN")
    tables.execute("LOCK TABLE tasks IN SHARE MODE")
    with pytest.raises(StorageUnavailable, match="nobody is judged"):
        await collector.run_once()
    tables.execute("COMMIT")
    writes.get_through(30)
    await collector.run_once()
    assert tables.running() is not None
    writes.get_through(20)
    await collector.run_once()
    assert tables.running() is None


async def test_one_zombie_that_cannot_be_collected_ends_no_evidence(
    collector: ZombieCollector, storage: Storage, tables: Tables
) -> None:
    """Somebody locks a row of it: that says nothing of the workers, and the next round judges too."""
    await lose_a_step(storage, tables)
    tables.execute("BEGIN")
    tables.execute("SELECT FROM running FOR UPDATE")
    await collector.run_once()
    tables.execute("COMMIT")
    assert tables.running() is not None
    await collector.run_once()
    assert (tables.running(), judging()) == (None, 1)


async def test_a_longer_lease_is_said(
    collector: ZombieCollector, tables: Tables, writes: Writes, caplog: pytest.LogCaptureFixture
) -> None:
    """A collector that was given a shorter lease than the workers keep says so, once."""
    tables.set_worker(seen_at=PAST, lease_age=60 * SECOND)
    for _ in range(2):
        await collector.run_once()
        collector._looks_around_at = 0.0
    (said,) = [each for each in caplog.records if "longer lease" in message_of(each)]
    assert (said.__dict__["lease_age"], said.__dict__["longest"]) == ("0:00:30", "0:01:00")


async def test_the_work_of_a_dead_worker_is_tried_again(
    collector: ZombieCollector, storage: Storage, tables: Tables, told: Told
) -> None:
    """Under on_zombie=retry the task goes back to the schedule, one attempt more, and nobody is told."""
    tables.set_namespace(on_zombie="retry")
    tables.set_worker(seen_at=PAST)
    await start_at(storage, PAST)
    step = await hold(storage, request(reply_to=CLIENT), now=PAST)
    before = zombies("retry")
    await collector.run_once()
    assert tables.task(step.task.task_id)["attempts_count"] == 1
    assert told.looks == []
    (again,) = await claim_calls(storage)
    assert again.task.task_id == step.task.task_id
    assert zombies("retry") == before + 1


async def test_exhausted_attempts_break_the_process_after_all(
    collector: ZombieCollector, storage: Storage, tables: Tables
) -> None:
    """A task that kills its worker again and again is given back `zombie_attempts` times."""
    tables.set_namespace(on_zombie="retry", zombie_attempts=1)
    tables.set_worker(seen_at=PAST)
    await start_at(storage, PAST)
    await hold(storage, request(), now=PAST)
    await collector.run_once()
    await claim_calls(storage, now=PAST)
    await collector.run_once()
    assert tables.process()["status"] == "error"


async def test_a_live_worker_keeps_its_work(
    collector: ZombieCollector, storage: Storage, tables: Tables
) -> None:
    """A fresh heartbeat protects a task, however long ago it began, up to step_timeout and grace."""
    tables.set_namespace()
    tables.set_worker(step_timeouts={NS: LONG})
    await start_at(storage, PAST)
    await hold(storage, request(), now=PAST)
    await collector.run_once()
    assert tables.running() is not None


async def test_a_task_that_outlived_its_time_is_lost(
    collector: ZombieCollector, storage: Storage, tables: Tables
) -> None:
    """Beyond step_timeout and grace a task is collected although its worker lives."""
    tables.set_namespace()
    tables.set_worker(step_timeouts={NS: SECOND})
    await start_at(storage, PAST)
    await hold(storage, request(), now=PAST)
    await collector.run_once()
    assert tables.process()["status"] == "error"


async def test_more_than_a_round_takes(
    collector: ZombieCollector, storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a full round the next one follows at once."""
    monkeypatch.setattr(zombie_collector, "_MOST", 2)
    tables.set_worker(seen_at=PAST)
    for number in range(3):
        await hold(storage, init(f"p{number}"), now=PAST)
    assert await collector.run_once() == timedelta(0)
    assert await collector.run_once() is None
    assert tables.execute("SELECT * FROM running") == []


async def test_dead_workers_are_forgotten(
    collector: ZombieCollector, tables: Tables, writes: Writes
) -> None:
    """The row of a worker that died goes away in the end."""
    tables.set_worker(OTHER_WORKER, seen_at=PAST)
    tables.set_worker(WORKER)
    writes.get_through(300)
    await collector.run_once()
    serving = "SELECT worker_id FROM workers WHERE namespaces <> '{}'"
    assert [row["worker_id"] for row in tables.execute(serving)] == [WORKER]


async def test_leftovers_that_cannot_be_dropped_wait_as_others_do(
    storage: Storage, tables: Tables, told: Told, writes: Writes
) -> None:
    """Dead workers are forgotten all the same, and the next rounds look for zombies alone."""
    tables.set_namespace()
    tables.set_worker(seen_at=PAST)
    await start_at(storage, PAST)
    await save(storage, await hold(storage, request(), now=PAST), removed(), now=PAST)
    tables.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'too slow' USING ERRCODE = '57014';
        END $$;
        CREATE TRIGGER refuse BEFORE DELETE ON tasks FOR EACH ROW EXECUTE FUNCTION refuse();
        """
    )
    writes.get_through(300)
    collector = collector_of(Storage(storage._connections, patience=timedelta()), told, writes)
    with pytest.raises(StorageUnavailable, match="too slow"):
        await collector.run_once()
    assert tables.execute("SELECT FROM workers WHERE namespaces <> '{}'") == []
    assert await collector.run_once() is None
