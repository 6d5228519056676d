"""Redo: an ended request is accepted again under a key of its own, with the values that are stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from progressor.inputs import redo_key
from progressor.model import TaskStatus
from progressor.storage.operations import Storage
from progressor.storage.values import Duplicate, NotPrepared, Postpone, Reason, Request, TaskRef
from tests.support import (
    NS,
    T0,
    LossyConnections,
    Tables,
    claim_calls,
    fail,
    hold,
    request,
    resume,
    save,
    start,
    wait,
)


async def ended(storage: Storage, process_id: str = "p1") -> TaskRef:
    """A call that finished."""
    await start(storage, process_id)
    step = await hold(storage, request(process_id, args=b"stored", context=b"ctx", name="pay"))
    await save(storage, step, resume())
    return TaskRef.of(step.task, step.process)


def redo(old: TaskRef, process_id: str = "p1") -> Request:
    """A request that runs it again."""
    asked = request(process_id, key=redo_key(old.task_id), worker_id=None, args=None, name="pay")
    return asked._replace(redoes=old.key, request_hash=old.request_hash or b"")


async def test_it_gets_the_values_of_the_old_one(storage: Storage) -> None:
    """None of them came from the client; and asked for again it is the same task."""
    old = await ended(storage)
    (result,) = await storage.redo([redo(old)], now=T0)
    assert isinstance(result, Postpone)
    (step,) = await claim_calls(storage)
    assert (step.task.task_id, step.task.args, step.task.context, step.task.name) == (
        result.task.task_id,
        b"stored",
        b"ctx",
        "pay",
    )
    await save(storage, step, resume())
    (again,) = await storage.redo([redo(old)], now=T0)
    assert isinstance(again, Duplicate)
    assert (again.task.task_id, again.answer.status) == (result.task.task_id, TaskStatus.FINISHED)


async def test_only_of_the_life_and_the_task_that_were_read(storage: Storage, tables: Tables) -> None:
    """Another birth, key or hash under the same numbers is another task: nothing is accepted."""
    old = await ended(storage)
    before = len(tables.tasks())
    for other in (
        old._replace(birth=(old.birth or 0) + 1),
        old._replace(idempotency_key="another"),
        old._replace(request_hash=b"another"),
        old._replace(task_id=old.task_id + 1000),
        old._replace(process_no=old.process_no + 1000),
    ):
        assert await storage.redo([redo(other)], now=T0) == [NotPrepared(Reason.NOT_FOUND)]
    assert len(tables.tasks()) == before


async def test_a_batch(storage: Storage) -> None:
    """Each gets its own outcome: accepted, broken, not there, and one that has not ended."""
    good, broken = await ended(storage, "good"), await ended(storage, "broken")
    await save(storage, await hold(storage, request("broken")), fail())
    waits = await wait(storage, request("good", worker_id=None))
    asked = [redo(good, "good"), redo(broken, "broken"), redo(good, "none"), redo(waits, "good")]
    asked[2] = asked[2]._replace(redoes=good._replace(process_no=0).key)
    results = await storage.redo(asked, now=T0)
    assert isinstance(results[0], Postpone)
    assert results[1:] == [
        NotPrepared(Reason.BROKEN, "ValueError: no"),
        NotPrepared(Reason.NOT_FOUND),
        NotPrepared(Reason.NOT_FOUND),
    ]


@pytest.fixture
async def connections(dsn: str, storage: Storage) -> AsyncIterator[LossyConnections]:
    lossy = LossyConnections(dsn, limit=2)
    yield lossy
    assert (lossy.early, lossy.late) == (0, 0), "nothing was repeated"
    await lossy.close()


@pytest.mark.parametrize("ran", [False, True])
async def test_a_lost_answer(
    storage: Storage, connections: LossyConnections, tables: Tables, ran: bool
) -> None:
    """The second try finds the task of the first, also if it was run meanwhile; its values stay."""
    old = await ended(storage)
    before = len(tables.tasks())
    lossy = Storage(connections, patience=timedelta(seconds=10))
    connections.late = 1

    async def meanwhile() -> None:
        (step,) = await claim_calls(storage)
        await save(storage, step, resume())

    if ran:
        connections.meanwhile = meanwhile
    (result,) = await lossy.redo([redo(old)], now=T0)
    assert isinstance(result, Duplicate if ran else Postpone)
    assert len(tables.tasks()) == before + 1
    newest = max(tables.tasks(), key=lambda task: task["task_id"])
    assert (newest["args"], newest["context"]) == (b"stored", b"ctx")
    assert newest["task_id"] == result.task.task_id
    assert result.task.namespace == NS
