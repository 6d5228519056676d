"""hand_back_unsaved: what lost the transaction of its handler waits for its pause, at its own place."""

from __future__ import annotations

import pytest

from progressor.model import TaskType
from progressor.storage.operations import Storage
from progressor.timers import SetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    break_process,
    change_timers,
    claim_calls,
    claim_timers,
    hold,
    init,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

LOST = "to run again: the connection was lost"


@pytest.mark.parametrize("task_type", [TaskType.INIT, TaskType.CALL, TaskType.NOTIFY, TaskType.REPAIR])
async def test_a_request_is_held(storage: Storage, tables: Tables, task_type: TaskType) -> None:
    """Nobody claims it before the end of its pause, nor what waits behind it; it keeps its place."""
    if task_type is TaskType.REPAIR:
        await break_process(storage)
    elif task_type is not TaskType.INIT:
        await start(storage, "p1", set_timer(SECOND))
    asked = init() if task_type is TaskType.INIT else request(task_type=task_type)
    step = await hold(storage, repair() if task_type is TaskType.REPAIR else asked)
    scheduled = step.task.scheduled_time
    behind = None if task_type is TaskType.REPAIR else await wait(storage, request(priority=10))
    await storage.hand_back_unsaved(step.task, 4 * SECOND, LOST, now=T0)
    row = tables.task(step.task.task_id)
    assert row is not None
    assert (row["status"], row["attempts_count"], row["zombie_count"]) == ("waiting", 1, None)
    assert (row["last_retry_interval"], row["error"]) == (4 * SECOND, LOST)
    assert await claim_calls(storage, now=T0 + SECOND) == []
    assert await claim_timers(storage, now=T0 + SECOND) == []
    assert await storage.ripen(NS, limit=10, now=T0 + 3 * SECOND) == 0
    assert await storage.ripen(NS, limit=10, now=T0 + 4 * SECOND) == 1
    (again,) = await claim_calls(storage, now=T0 + 4 * SECOND)
    assert (again.task.task_id, again.task.scheduled_time) == (step.task.task_id, scheduled)
    assert (again.task.attempts_count, again.task.last_retry_interval) == (1, 4 * SECOND)
    saved = await save(storage, again, resume(), now=T0 + 4 * SECOND)
    assert behind is None or (saved.continuation and saved.continuation.task_id == behind.task_id)


async def test_a_timer_is_due_after_its_pause(storage: Storage, tables: Tables) -> None:
    """It uses up no attempt; another timer that is due before it comes first."""
    both = change_timers(SetTimer(at=T0 + SECOND, name="lost"), SetTimer(at=T0 + 2 * SECOND, name="other"))
    await start(storage, "p1", both)
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    assert step.task.name == "lost"
    await storage.hand_back_unsaved(step.task, 4 * SECOND, LOST, now=T0 + SECOND)
    row = tables.task(step.task.task_id)
    assert row is not None
    assert (row["attempts_count"], row["zombie_count"], row["error"]) == (None, None, LOST)
    assert (row["scheduled_time"], row["last_retry_interval"]) == (T0 + 5 * SECOND, 4 * SECOND)
    (other,) = await claim_timers(storage, now=T0 + 3 * SECOND)
    assert other.task.name == "other"
    await save(storage, other, resume(), now=T0 + 3 * SECOND)
    (again,) = await claim_timers(storage, now=T0 + 5 * SECOND)
    assert (again.task.name, again.task.attempts_count) == ("lost", 0)


async def test_what_is_not_held_any_more_is_left_alone(storage: Storage, tables: Tables) -> None:
    """A step whose lease was lost meanwhile puts nothing back."""
    await start(storage)
    step = await hold(storage, request())
    await save(storage, step, resume())
    before = tables.everything()
    await storage.hand_back_unsaved(step.task, SECOND, LOST, now=T0)
    assert tables.everything() == before
