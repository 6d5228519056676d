"""Answers that were committed, and whose process was removed before they were read."""

from __future__ import annotations

from datetime import timedelta

from progressor.model import TaskStatus
from progressor.storage.operations import Storage
from progressor.storage.values import Duplicate, Postpone, TaskOutcome
from tests.support import claim_calls, hold, init, removed, request, resume, save, set_timer, start, wait


async def test_answer_of_the_call_before(storage: Storage) -> None:
    """A caller elsewhere reads its answer a moment later; the next call has removed the process."""
    await start(storage)
    first = await wait(storage, request(worker_id=None, reply_to=61))
    await wait(storage, request(worker_id=None))
    (step,) = await claim_calls(storage)
    following = step.next(await save(storage, step, resume()), resume())
    await save(storage, following, removed())
    assert await storage.replies([first.key]) == [TaskOutcome(TaskStatus.FINISHED, b"answer")]


async def test_answer_of_the_start(storage: Storage) -> None:
    """The same for a start that sets a timer which removes the process at once."""
    step = await hold(storage, init(reply_to=61))
    decision = set_timer(timedelta(0), remove=True)
    following = step.next(await save(storage, step, decision), decision)
    await save(storage, following, removed())
    assert await storage.replies([step.ref.key]) == [TaskOutcome(TaskStatus.FINISHED, b"answer")]


async def test_a_start_asked_again(storage: Storage) -> None:
    """A start whose process removed itself is not begun again under its key: it has its answer."""
    again = init(worker_id=None)
    await wait(storage, again)
    (step,) = await claim_calls(storage)
    following = step.next(await save(storage, step, set_timer(timedelta(0), remove=True)), removed())
    await save(storage, following, removed())
    (outcome,) = await storage.prepare_init([again])
    assert isinstance(outcome, Duplicate)
    assert outcome.answer == TaskOutcome(TaskStatus.FINISHED, b"answer")


async def test_whom_somebody_removed_is_forgotten(storage: Storage) -> None:
    """After `remove` the id and the keys are as new."""
    again = init(worker_id=None)
    await wait(storage, again)
    (step,) = await claim_calls(storage)
    await save(storage, step, resume())
    assert (await storage.remove(step.task.namespace, step.task.process_id)).existed
    (outcome,) = await storage.prepare_init([again])
    assert isinstance(outcome, Postpone)
