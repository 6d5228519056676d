"""Fencing: who does not hold the running row of this very task changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from progressor.model import Decision
from progressor.storage.operations import Storage
from progressor.storage.values import LostLease, Step
from progressor.timers import SetTimer
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    T0,
    Held,
    Tables,
    cancel,
    claim_calls,
    claim_timers,
    collect,
    events,
    fail,
    fail_repair,
    hold,
    init,
    refuse,
    removed,
    repair,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
    wait,
)

DECISIONS: list[Decision] = [
    resume(events=events(2), aux_state=b"stolen"),
    set_timer(SECOND, events=events(1)),
    set_timer(timedelta(0), events=events(1)),
    cancel(events=events(1)),
    retry(),
    fail(),
    fail()._replace(timer=SetTimer(at=T0)),
    fail_repair(),
    refuse(),
    removed(events=events(1)),
]


_LOST, _REMOVED = LostLease(), LostLease(removed=True)


async def assert_fenced_off(storage: Storage, tables: Tables, step: Step, lost: LostLease = _LOST) -> None:
    """Whatever the step decided, alone or together: lost, and nothing is written."""
    before = tables.everything()
    for decision in DECISIONS:
        result = await storage.save_result([step._replace(decision=decision)], now=T0 + SECOND)
        assert result == [lost], decision
        assert tables.everything() == before, decision


async def busy(storage: Storage) -> Held:
    """A call that runs, with a blocked timer and another call behind it."""
    await start(storage, "p1", set_timer(SECOND, events=events(1)))
    step = await hold(storage, request())
    await wait(storage, request(reply_to=9))
    return step


@pytest.mark.parametrize(
    "stolen",
    [
        {"worker_id": OTHER_WORKER},
        {"lease": 1},
        {"task_id": 1},
        {"process_no": 2},
    ],
    ids=lambda stolen: next(iter(stolen)),
)
async def test_every_part_of_the_key_counts(
    storage: Storage, tables: Tables, stolen: dict[str, object]
) -> None:
    """Worker, lease, task and process must all be those of the running row."""
    step = await busy(storage)
    await hold(storage, init("p2"))
    task = step.task._replace(**stolen)  # type: ignore[arg-type]
    await assert_fenced_off(storage, tables, Held(task, step.process).step(resume()))
    await save(storage, step, resume())


async def test_step_is_saved_once(storage: Storage, tables: Tables) -> None:
    """A step that was saved cannot be saved again, with or without a continuation."""
    step = await busy(storage)
    saved = await save(storage, step, resume())
    await assert_fenced_off(storage, tables, step.step(resume()))
    second = step.next(saved, resume())
    await save(storage, second, resume())
    await assert_fenced_off(storage, tables, second.step(resume()))


async def test_same_task_under_another_lease(storage: Storage, tables: Tables) -> None:
    """A task that was handed back and claimed again by the same worker is another claim."""
    step = await hold(storage, init())
    await storage.hand_back([step.task])
    await assert_fenced_off(storage, tables, step.step(resume()))
    (again,) = await claim_calls(storage)
    assert again.task.task_id == step.task.task_id
    await assert_fenced_off(storage, tables, step.step(resume()))
    await save(storage, again, resume())


async def test_retried_task(storage: Storage, tables: Tables) -> None:
    """The lease of an earlier attempt is worth nothing while the task waits, or runs, again."""
    await start(storage, "p1", set_timer(SECOND))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    await save(storage, step, retry(SECOND), now=T0 + SECOND)
    await assert_fenced_off(storage, tables, step.step(resume()))
    await claim_timers(storage, now=T0 + 2 * SECOND)
    await assert_fenced_off(storage, tables, step.step(resume()))


@pytest.mark.parametrize("policy", ["error", "retry"])
async def test_collected_zombie(storage: Storage, tables: Tables, policy: str) -> None:
    """A worker that was taken for dead saves nothing when it comes back."""
    tables.set_namespace(on_zombie=policy)
    step = await busy(storage)
    tables.set_collector()
    await collect(storage, T0 + 2 * SECOND)
    await assert_fenced_off(storage, tables, step.step(resume()))


@pytest.mark.parametrize("worker_id", [None, OTHER_WORKER])
async def test_collected_zombie_under_repair(
    storage: Storage, tables: Tables, worker_id: str | None
) -> None:
    """A zombie that comes back leaves alone the repair of the process that it broke."""
    tables.set_namespace()
    step = await busy(storage)
    tables.set_collector()
    await collect(storage, T0 + 2 * SECOND)
    await storage.prepare_repair([repair(worker_id=worker_id)], now=T0)
    await assert_fenced_off(storage, tables, step.step(resume()))


async def test_saved_failure_under_repair(storage: Storage, tables: Tables) -> None:
    """A failure that is saved a second time leaves the waiting repair alone."""
    step = await busy(storage)
    await save(storage, step, fail())
    await wait(storage, repair(worker_id=None))
    await assert_fenced_off(storage, tables, step.step(fail()))


async def test_saved_removal_and_a_new_life(storage: Storage, tables: Tables) -> None:
    """A removal that is saved a second time leaves alone the process that was made anew."""
    step = await busy(storage)
    await save(storage, step, removed())
    await start(storage, "p1", set_timer(SECOND, events=events(1)))
    await assert_fenced_off(storage, tables, step.step(removed()), _REMOVED)


async def test_removed_process(storage: Storage, tables: Tables) -> None:
    """The step of a removed process saves nothing, also when the id lives again."""
    step = await busy(storage)
    await storage.remove(NS, "p1")
    await assert_fenced_off(storage, tables, step.step(resume()), _REMOVED)
    await hold(storage, init())
    await assert_fenced_off(storage, tables, step.step(resume()), _REMOVED)


async def test_one_of_a_batch(storage: Storage, tables: Tables) -> None:
    """A lost step does not keep the others of its batch from being saved, nor write among them."""
    steps = [await hold(storage, init(f"p{place}")) for place in range(3)]
    await storage.hand_back([steps[1].task])
    lost_before = (tables.process("p1"), tables.tasks("p1"), tables.schedule("p1"))
    for decision in (resume(events=events(2)), fail(), removed()):
        results = await storage.save_result([step.step(decision) for step in steps], now=T0)
        assert results[1] == LostLease()
        assert (tables.process("p1"), tables.tasks("p1"), tables.schedule("p1")) == lost_before
        for process_id in ("p0", "p2"):
            await storage.remove(NS, process_id)
        steps[0], steps[2] = [await hold(storage, init(name)) for name in ("p0", "p2")]
