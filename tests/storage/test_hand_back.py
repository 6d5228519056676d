"""hand_back: a worker that stops returns what it has not begun, and nothing is lost or reordered."""

from __future__ import annotations

from progressor.storage.operations import Storage
from progressor.storage.values import LostLease
from tests.support import (
    OTHER_WORKER,
    SECOND,
    T0,
    Tables,
    break_process,
    claim_calls,
    claim_timers,
    hold,
    ids,
    init,
    repair,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
    wait,
)


async def test_can_be_claimed_at_once(storage: Storage, tables: Tables) -> None:
    """A task that was handed back is claimed as if nothing had been: same id, no attempt counted."""
    step = await hold(storage, init(args=b"1"))
    await storage.hand_back([step.task])
    row = tables.task(step.task.task_id)
    assert row is not None
    assert (row["status"], row["running_time"], row["worker_id"], row["lease"]) == (
        "waiting",
        None,
        None,
        None,
    )
    (again,) = await claim_calls(storage, worker_id=OTHER_WORKER)
    assert (again.task.task_id, again.task.args) == (step.task.task_id, b"1")
    assert again.task.attempts_count == 0


async def test_call_goes_back_to_the_head(storage: Storage, tables: Tables) -> None:
    """A call goes back before those that came after it; the timer stays blocked."""
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request())
    await wait(storage, request())
    await storage.hand_back([step.task])
    assert tables.outline()[1:] == [
        ("timeout", "blocked"),
        ("call", "waiting"),
        ("call", "waiting"),
    ]
    assert ids(await claim_calls(storage)) == [step.task.task_id]


async def test_timer_goes_back_behind_a_call(storage: Storage, tables: Tables) -> None:
    """A timer goes back behind the call that came meanwhile, which can now be claimed."""
    await start(storage, "p1", set_timer(SECOND))
    (timer,) = await claim_timers(storage, now=T0 + SECOND)
    first = await wait(storage, request())
    await wait(storage, request())
    await storage.hand_back([timer.task])
    assert tables.outline()[1] == ("timeout", "blocked")
    assert ids(await claim_calls(storage)) == [first.task_id]


async def test_timer_keeps_its_time_and_attempts(storage: Storage) -> None:
    """A timer that was handed back is due when it was, with the attempts that it had."""
    await start(storage, "p1", set_timer(SECOND))
    (timer,) = await claim_timers(storage, now=T0 + SECOND)
    await save(storage, timer, retry(SECOND), now=T0 + SECOND)
    (timer,) = await claim_timers(storage, now=T0 + 2 * SECOND)
    await storage.hand_back([timer.task])
    (again,) = await claim_timers(storage, now=T0 + 2 * SECOND)
    assert again.task.scheduled_time == T0 + 2 * SECOND
    assert (again.task.attempts_count, again.task.last_retry_interval) == (1, SECOND)


async def test_repair_goes_back(storage: Storage) -> None:
    """A repair of a broken process waits again."""
    await break_process(storage)
    step = await hold(storage, repair())
    await storage.hand_back([step.task])
    assert ids(await claim_calls(storage)) == [step.task.task_id]


async def test_is_fenced(storage: Storage, tables: Tables) -> None:
    """A lease that is not held any more hands nothing back; who handed back saves nothing."""
    step = await hold(storage, init())
    await storage.hand_back([step.task._replace(lease=step.task.lease + 1)])
    assert tables.outline() == [("init", "running")]
    await storage.hand_back([step.task])
    assert await storage.save_result([step.step(resume())], now=T0) == [LostLease()]
    (again,) = await claim_calls(storage, worker_id=OTHER_WORKER)
    await storage.hand_back([step.task])
    assert tables.running() is not None
    await save(storage, again, resume())


async def test_batch(storage: Storage, tables: Tables) -> None:
    """All of a worker's tasks go back in one transaction; what is not its own stays."""
    steps = [await hold(storage, init(f"p{place}")) for place in range(5)]
    other = await hold(storage, init("other", worker_id=OTHER_WORKER))
    await save(storage, steps[0], resume())
    await storage.hand_back([step.task for step in steps])
    assert ids(await claim_calls(storage)) == ids(steps[1:])
    assert tables.running("other")["task_id"] == other.task.task_id  # type: ignore[index]


async def test_nothing(storage: Storage) -> None:
    """A worker that holds nothing hands nothing back."""
    await storage.hand_back([])
