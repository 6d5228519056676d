"""capture_task: claim one task by its id, if it is the next of its process and due."""

from __future__ import annotations

from progressor.model import TaskType
from progressor.storage.operations import Storage
from progressor.storage.values import TaskRef
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    T0,
    Held,
    Tables,
    held,
    hold,
    init,
    number,
    request,
    set_timer,
    start,
    wait,
)


async def capture(storage: Storage, ref: TaskRef, *, seconds: int = 0) -> Held | None:
    now = T0 + seconds * SECOND
    found = await storage.capture_task(ref, worker_id=OTHER_WORKER, lease=number(), now=now)
    return None if found is None else held(found)


async def test_captures_a_waiting_call(storage: Storage, tables: Tables) -> None:
    """A waiting call moves to the worker that asked for it."""
    await start(storage)
    ref = await wait(storage, request(worker_id=None, args=b"1"))
    step = await capture(storage, ref)
    assert step is not None
    assert (step.task.task_id, step.task.worker_id, step.task.args) == (ref.task_id, OTHER_WORKER, b"1")
    assert tables.outline()[-1] == ("call", "running")
    assert await capture(storage, ref) is None


def _timer_of(tables: Tables, process_id: str) -> TaskRef:
    timer = tables.schedule(process_id)[0]
    return TaskRef(NS, timer["process_no"], timer["task_id"])


async def test_captures_a_due_timer(storage: Storage, tables: Tables) -> None:
    """A timer is captured when it is due, not before."""
    await start(storage, "p1", set_timer(SECOND))
    ref = _timer_of(tables, "p1")
    assert await capture(storage, ref) is None
    step = await capture(storage, ref, seconds=1)
    assert step is not None
    assert step.task.task_type is TaskType.TIMEOUT


async def test_a_clock_that_was_set_back(storage: Storage, tables: Tables) -> None:
    """A request is captured however early the clock says it is; a timer waits for its time."""
    await start(storage, "p1", set_timer(SECOND))
    timer = _timer_of(tables, "p1")
    await start(storage, "p2")
    ref = await wait(storage, request("p2", worker_id=None))
    assert await capture(storage, timer, seconds=-3600) is None
    step = await capture(storage, ref, seconds=-3600)
    assert step is not None
    assert step.task.task_id == ref.task_id


async def test_leaves_what_is_not_next(storage: Storage, tables: Tables) -> None:
    """A call behind another, or on a busy process, and a blocked timer are not captured."""
    await start(storage, "mail", set_timer(SECOND))
    await wait(storage, request("mail", worker_id=None))
    second = await wait(storage, request("mail"))
    await hold(storage, init("busy"))
    behind = await wait(storage, request("busy"))
    timer = _timer_of(tables, "mail")
    before = tables.everything()
    for ref in (second, behind, timer):
        assert await capture(storage, ref, seconds=9) is None
    assert tables.everything() == before


async def test_leaves_what_is_not_there(storage: Storage) -> None:
    """A task that ended, or never was, or is another process's, is not captured."""
    await start(storage)
    ref = await wait(storage, request(worker_id=None))
    assert await capture(storage, ref._replace(process_no=ref.process_no + 1)) is None
    assert await capture(storage, ref._replace(task_id=2**40)) is None
    assert await capture(storage, ref._replace(task_id=ref.task_id - 1)) is None


async def test_paused_namespace(storage: Storage, tables: Tables) -> None:
    """In a paused namespace nothing is captured."""
    await start(storage)
    ref = await wait(storage, request(worker_id=None))
    tables.set_namespace(paused=True)
    assert await capture(storage, ref) is None
