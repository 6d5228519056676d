"""The expiry of a request is counted from its acceptance, and goes with its task into a worker's hands."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from progressor.handlers.perform import perform
from progressor.handlers.running.deadlines import Deadlines
from progressor.handlers.timers import passed_over
from progressor.model import Decision, Disposition, ProcessStatus, Rejection, Reply, TaskType
from progressor.storage.operations import Storage
from progressor.timers import SetTimer
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    T0,
    Held,
    Tables,
    claim_calls,
    claim_timers,
    collect,
    hold,
    request,
    resume,
    save,
    start,
    wait,
)

MINUTE = timedelta(minutes=1)


class Refusing:
    """A handler that must not run."""

    async def process(self, task: Any, process: Any) -> Any:
        raise AssertionError


async def is_refused(held: Held) -> bool:
    """Whether a worker that holds it refuses it."""
    outcome = await perform(Refusing(), held.process, held.task, Deadlines(60))
    return isinstance(outcome, Rejection) and outcome.expired


def expiry(tables: Tables, task_id: int) -> datetime | None:
    row = tables.task(task_id)
    assert row is not None
    return row["expires_at"]


async def test_it_is_counted_from_the_acceptance(storage: Storage, tables: Tables) -> None:
    """Of a call that runs at once and of one that waits; none without."""
    await start(storage)
    runs = await hold(storage, request(expires=MINUTE))
    waits = await wait(storage, request(task_type=TaskType.NOTIFY, expires=2 * MINUTE), now=T0 + SECOND)
    plain = await wait(storage, request())
    assert [expiry(tables, task_id) for task_id in (runs.task.task_id, waits.task_id, plain.task_id)] == [
        T0 + MINUTE,
        T0 + SECOND + 2 * MINUTE,
        None,
    ]
    assert runs.task.expires_at == T0 + MINUTE


async def test_a_claim_and_a_continuation_have_it(storage: Storage) -> None:
    """It is judged by when the task began, by PostgreSQL's clock."""
    await start(storage, "p1")
    await start(storage, "p2")
    first = await hold(storage, request("p1"))
    await wait(storage, request("p1", expires=MINUTE))
    await wait(storage, request("p2", worker_id=None, expires=MINUTE))
    saved = await save(storage, first, resume(), now=T0 + MINUTE)
    (claimed,) = await claim_calls(storage, now=T0 + MINUTE)
    for held in (first.next(saved, resume()), claimed):
        assert (held.task.expires_at, held.task.running_time) == (T0 + MINUTE, T0 + MINUTE)
        assert await is_refused(held)


async def test_what_was_handed_back_may_expire(storage: Storage) -> None:
    """Its worker had not begun it."""
    await start(storage)
    step = await hold(storage, request(expires=MINUTE))
    await storage.hand_back([step.task])
    (again,) = await claim_calls(storage, now=T0 + MINUTE, worker_id=OTHER_WORKER)
    assert await is_refused(again)


async def test_what_lost_its_worker_has_begun(storage: Storage, tables: Tables) -> None:
    """It is tried again however late, where the namespace tries such requests again."""
    tables.set_namespace(on_zombie="retry")
    tables.set_collector()
    await start(storage)
    await hold(storage, request(expires=MINUTE))
    await collect(storage, T0 + 2 * MINUTE)
    (again,) = await claim_calls(storage, now=T0 + 2 * MINUTE, worker_id=OTHER_WORKER)
    assert (again.task.attempts_count, again.task.expires_at) == (1, T0 + MINUTE)
    assert not await is_refused(again)


async def test_what_lost_its_transaction_has_begun(storage: Storage) -> None:
    """It runs again however late, as often as that happens; each time is a try."""
    await start(storage)
    step = await hold(storage, request(expires=MINUTE))
    for tries in (1, 2):
        await storage.hand_back_unsaved(step.task, timedelta(0), "lost", now=T0)
        assert await storage.ripen(NS, limit=10, now=T0) == 1
        (step,) = await claim_calls(storage, now=T0 + 2 * MINUTE, worker_id=OTHER_WORKER)
        assert (step.task.attempts_count, step.task.expires_at) == (tries, T0 + MINUTE)
        assert not await is_refused(step)
    # Once begun, it stays so.
    await storage.hand_back([step.task])
    (again,) = await claim_calls(storage, now=T0 + 2 * MINUTE, worker_id=OTHER_WORKER)
    assert not await is_refused(again)


@pytest.mark.parametrize("begun", [False, True], ids=["not begun", "begun"])
async def test_a_timer_that_lost_its_transaction_is_not_too_late(storage: Storage, begun: bool) -> None:
    """One that recurs has begun, as a request has; and no attempt of its policy is used up."""
    timer = SetTimer(every=60 * MINUTE, within=MINUTE).armed(T0, NS, "p1", "")
    armed = Decision(Disposition.REPLACE, Reply(response=b"answer"), ProcessStatus.RUNNING, timer=timer)
    await start(storage, "p1", armed)
    (step,) = await claim_timers(storage, now=T0 + 60 * MINUTE)
    assert passed_over(step.task) is None
    if begun:
        await storage.hand_back_unsaved(step.task, SECOND, "lost", now=T0 + 60 * MINUTE)
    else:
        await storage.hand_back([step.task])
    (again,) = await claim_timers(storage, now=T0 + 90 * MINUTE)
    assert again.task.attempts_count == 0
    assert (passed_over(again.task) is None) is begun
