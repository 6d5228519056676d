"""The trace context of a task: written with it, read with it, and left to the timers of its step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from progressor.storage.operations import Storage
from progressor.timers import SetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    WORKER,
    LossyConnections,
    Tables,
    change_timers,
    claim_calls,
    claim_timers,
    collect,
    fail_timer,
    hold,
    init,
    number,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
    wait,
)

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WAITS, STATE = f"{TRACE}+30", f"{TRACE}+30 a=1"
SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01"


@pytest.fixture
async def lossy(dsn: str, storage: Storage) -> AsyncIterator[Storage]:
    """Its next operation is committed, and its answer lost."""
    connections = LossyConnections(dsn, limit=2)
    connections.late = 1
    yield Storage(connections, patience=timedelta(seconds=10))
    assert connections.late == 0, "nothing was repeated"
    await connections.close()


@pytest.mark.parametrize("traced", [True, False])
async def test_a_claim_reads_it(storage: Storage, tables: Tables, traced: bool) -> None:
    """Of each task its own, also beside tasks without one; by id, and by a repeated claim."""
    trace = STATE if traced else None
    for process_id in ("p1", "p2", "p3"):
        await start(storage, process_id)
    await wait(storage, request("p1", worker_id=None, trace=trace))
    await wait(storage, request("p2", worker_id=None))
    by_id = await wait(storage, request("p3", worker_id=None, trace=trace))
    captured = await storage.capture_task(by_id, worker_id=WORKER, lease=number(), now=T0)
    assert captured is not None
    assert captured.task.trace == trace
    lease = number()
    for tried in (False, True):
        found = await storage.search("calls", NS, 9, worker_id=WORKER, lease=lease, now=T0, tried=tried)
        assert {each.task.process_id: each.task.trace for each in found} == {"p1": trace, "p2": None}


async def test_a_request_of_a_free_worker_has_it(storage: Storage, tables: Tables) -> None:
    """A start and a call, at once."""
    first = await hold(storage, init(trace=WAITS))
    assert first.task.trace == WAITS
    await save(storage, first, resume())
    second = await hold(storage, request(trace=STATE))
    assert second.task.trace == STATE
    assert [row["trace"] for row in tables.tasks()] == [WAITS, STATE]


@pytest.mark.parametrize("timer", [None, SECOND], ids=["timeless", "with a timer"])
async def test_a_continuation_reads_it(storage: Storage, timer: timedelta | None) -> None:
    """Of the call that waited behind the step, also if the answer to the save was lost."""
    first = await hold(storage, init(trace=WAITS))
    await wait(storage, request(worker_id=None, trace=STATE))
    decision = resume() if timer is None else set_timer(timer)
    step = first.step(decision)
    for tried in (False, True):
        (saved,) = await storage.save_result([step], now=T0, tried=tried)
        assert saved.continuation.trace == STATE  # type: ignore[union-attr]


@pytest.mark.parametrize("of_span", [False, True])
@pytest.mark.parametrize("by", ["save_lite", "save_result", "change_timers"])
async def test_a_timer_has_that_of_its_step(
    storage: Storage, tables: Tables, by: str, of_span: bool
) -> None:
    """Of its span if it has one, else of its task, for whose timer nobody waits."""
    await start(storage)
    kind = init("p2", trace=STATE) if by == "save_lite" else request(trace=STATE)
    step = await hold(storage, kind)
    fields = {"trace": SPAN} if of_span else {}
    changes = (SetTimer(after=SECOND), SetTimer(after=2 * SECOND, name="second"))
    decision = change_timers(*changes, **fields) if by == "change_timers" else set_timer(SECOND, **fields)
    await save(storage, step, decision)
    timers = await claim_timers(storage, now=T0 + 3 * SECOND)
    expected = SPAN if of_span else f"{TRACE} a=1"
    assert {each.task.trace for each in timers} == {expected}
    rows = [row["trace"] for row in tables.tasks(kind.process_id) if row["task_type"] == "timeout"]
    assert rows == [expected] * (2 if by == "change_timers" else 1)


@pytest.mark.parametrize("waits", [True, False], ids=["save_result", "save_lite"])
async def test_a_timer_that_runs_at_once_has_it(storage: Storage, tables: Tables, waits: bool) -> None:
    """As a continuation, and in its row; the next one it sets too."""
    await start(storage)
    step = await hold(storage, request(trace=WAITS) if waits else init("p2", trace=WAITS))
    for _ in range(3):
        decision = set_timer(timedelta(0))
        step = step.next(await save(storage, step, decision), decision)
        assert step.task.trace == TRACE
        row = tables.task(step.task.task_id)
        assert row is not None
        assert row["trace"] == TRACE


async def test_a_retry_and_a_lost_worker_keep_it(storage: Storage, tables: Tables) -> None:
    """The task is the same."""
    tables.set_namespace(on_zombie="retry")
    tables.set_collector()
    first = await hold(storage, init(trace=STATE))
    decision = set_timer(timedelta(0))
    timer = first.next(await save(storage, first, decision), decision)
    await save(storage, timer, retry(SECOND))
    (again,) = await claim_timers(storage, now=T0 + SECOND)
    assert (again.task.trace, again.task.attempts_count) == (f"{TRACE} a=1", 1)
    assert len(await collect(storage, T0 + 90 * SECOND)) == 1
    (kept,) = await claim_timers(storage, now=T0 + 91 * SECOND)
    assert (kept.task.trace, kept.task.attempts_count) == (f"{TRACE} a=1", 2)


@pytest.mark.parametrize("lost", [True, False], ids=["lost worker", "failure"])
async def test_a_timer_held_in_place_of_one_that_broke_its_process_has_it(
    storage: Storage, tables: Tables, lost: bool
) -> None:
    """It is a new task."""
    tables.set_namespace(on_zombie="error")
    tables.set_collector()
    first = await hold(storage, init(trace=STATE))
    decision = set_timer(timedelta(0))
    timer = first.next(await save(storage, first, decision), decision)
    if lost:
        assert len(await collect(storage, T0 + 90 * SECOND)) == 1
    else:
        await save(storage, timer, fail_timer(timer.task))
    *_, old, new = tables.tasks()
    assert (old["task_id"], old["status"], new["status"]) == (timer.task.task_id, "error", "waiting")
    assert new["trace"] == f"{TRACE} a=1"


async def test_a_repeated_request_keeps_its_own(lossy: Storage, storage: Storage, tables: Tables) -> None:
    """The task that its first try has made."""
    step = await hold(lossy, init(trace=WAITS))
    assert step.task.trace == WAITS
    assert [row["trace"] for row in tables.tasks()] == [WAITS]


async def test_calls_that_wait_have_their_own(storage: Storage) -> None:
    """In one batch."""
    await start(storage)
    asked = [request(worker_id=None, trace=each) for each in (None, WAITS, None, STATE)]
    await storage.prepare_call(asked, now=T0)
    found: list[str | None] = []
    for _ in asked:
        (step,) = await claim_calls(storage, 1)
        found.append(step.task.trace)
        await save(storage, step, resume(), keeps_slot=False)
    assert found == [None, WAITS, None, STATE]
