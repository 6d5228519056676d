"""The zombie collector: what it takes from whom, and whom it tells."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from progressor.model import TaskStatus
from progressor.storage.items import Answer, TaskRef
from progressor.storage.operations import Storage
from progressor.zombie_collector import ZombieCollector
from tests.engine.clock import PAST, start_at
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    WORKER,
    Tables,
    claim_calls,
    hold,
    init,
    request,
    save,
    start,
    unlock,
    wait,
)

CLIENT = 61


class Told:
    """Stands where Replies would: what callers were told."""

    def __init__(self) -> None:
        self.answers: list[tuple[TaskRef, Answer]] = []

    def tell(self, ref: TaskRef, answer: Answer) -> None:
        self.answers.append((ref, answer))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def collector(storage: Storage, told: Told) -> ZombieCollector:
    replies: Any = told
    # PostgreSQL's start counts as everybody's heartbeat, so the lease must be younger than the server.
    lease_age = timedelta(microseconds=1)
    return ZombieCollector(storage, replies, interval=60 * SECOND, lease_age=lease_age, grace=3600 * SECOND)


def zombies(verdict: str) -> float:
    return REGISTRY.get_sample_value(
        "progressor_zombies_total", {"prg_namespace": NS, "verdict": verdict}
    ) or 0.0  # fmt: skip


def broken() -> float:
    return REGISTRY.get_sample_value("progressor_broken_total", {"prg_namespace": NS}) or 0.0


async def test_nothing_to_collect(collector: ZombieCollector, storage: Storage, told: Told) -> None:
    """A round without zombies tells nobody, and the next one can wait."""
    await start(storage)
    assert await collector.run_once() is None
    assert told.answers == []


async def test_counters_stand_there_before_the_first_zombie(
    collector: ZombieCollector, tables: Tables
) -> None:
    """A collector apart shows them for what is served: the first zombie is an increase."""
    collector._lease_age = 15 * SECOND
    tables.execute("INSERT INTO workers (worker_id, host, namespaces) VALUES (9, 'h', '{shop.apart}')")
    await collector.run_once()
    for verdict in ("error", "retry"):
        labels = {"prg_namespace": "shop.apart", "verdict": verdict}
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
    before, broken_before = zombies("error"), broken()
    await collector.run_once()
    process = tables.process()
    assert (process["status"], process["detail"]) == ("error", "zombie detected")
    assert process["corrupted_by"] == step.task.task_id
    assert tables.outline()[1:] == [("call", "error"), ("call", "cancelled")]
    assert [(ref.task_id, ref.reply_to, answer.status, answer.error) for ref, answer in told.answers] == [
        (step.task.task_id, CLIENT, TaskStatus.ERROR, "zombie detected"),
        (waiting.task_id, CLIENT, TaskStatus.CANCELLED, "zombie detected"),
    ]
    assert (zombies("error"), broken()) == (before + 1, broken_before + 1)


async def test_who_was_cut_off_does_not_judge(
    collector: ZombieCollector, storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time without PostgreSQL ages count from its end: so were the workers, perhaps."""
    tables.set_namespace(on_zombie="error")
    await start_at(storage, PAST)
    await collector.run_once()
    step = await hold(storage, request(), now=PAST)
    clock = storage.clock

    async def an_hour_later() -> datetime:
        return await clock() + timedelta(hours=1)

    before = zombies("error")
    with monkeypatch.context() as patch:
        patch.setattr(storage, "clock", an_hour_later)
        for _ in range(3):
            await collector.run_once()
    assert zombies("error") == before
    await save(storage, step, unlock())


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
    assert told.answers == []
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


async def test_a_live_worker_keeps_its_work(storage: Storage, tables: Tables, told: Told) -> None:
    """A fresh heartbeat protects a task, however long ago it began, up to step_timeout and grace."""
    replies: Any = told
    tables.set_namespace(step_timeout=10)
    tables.set_worker()
    await start_at(storage, PAST)
    await hold(storage, request(), now=None)
    collector = ZombieCollector(
        storage, replies, interval=SECOND, lease_age=3600 * SECOND, grace=3600 * SECOND
    )
    await collector.run_once()
    assert tables.running() is not None


async def test_a_task_that_outlived_its_time_is_lost(storage: Storage, tables: Tables, told: Told) -> None:
    """Beyond step_timeout and grace a task is collected although its worker lives."""
    replies: Any = told
    # PostgreSQL's start counts as the step's begin, so its time must be shorter than the server is old.
    tables.set_namespace(step_timeout=0.001)
    tables.set_worker()
    await start_at(storage, PAST)
    await hold(storage, request(), now=PAST)
    collector = ZombieCollector(
        storage, replies, interval=SECOND, lease_age=3600 * SECOND, grace=timedelta(0)
    )
    await collector.run_once()
    assert tables.process()["status"] == "error"


async def test_more_than_a_round_takes(
    collector: ZombieCollector, storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a full round the next one follows at once."""
    monkeypatch.setattr("progressor.zombie_collector._MOST", 2)
    tables.set_worker(seen_at=PAST)
    for number in range(3):
        await hold(storage, init(f"p{number}"), now=PAST)
    assert await collector.run_once() == timedelta(0)
    assert await collector.run_once() is None
    assert tables.execute("SELECT * FROM running") == []


async def test_dead_workers_are_forgotten(collector: ZombieCollector, tables: Tables) -> None:
    """The row of a worker that died goes away in the end."""
    tables.set_worker(OTHER_WORKER, seen_at=PAST)
    tables.set_worker(WORKER)
    await collector.run_once()
    assert [row["worker_id"] for row in tables.execute("SELECT worker_id FROM workers")] == [WORKER]
