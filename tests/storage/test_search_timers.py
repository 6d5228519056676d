"""search_timers: claim due timers, earliest first, of processes that have nothing else to do."""

from __future__ import annotations

from datetime import timedelta

from progressor.model import TaskType
from progressor.storage.operations import Storage
from tests.support import (
    MICROSECOND,
    NS,
    SECOND,
    T0,
    WORKER,
    Tables,
    claim_calls,
    claim_timers,
    hold,
    init,
    number,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

LATER = T0 + timedelta(hours=1)


async def test_nothing_is_due(storage: Storage) -> None:
    """A timer of the future is left alone, to the microsecond."""
    await start(storage, "p1", set_timer(SECOND))
    assert await claim_timers(storage, now=T0 + SECOND - MICROSECOND) == []
    assert len(await claim_timers(storage, now=T0 + SECOND)) == 1


async def test_claims_timeouts_and_removals(storage: Storage, tables: Tables) -> None:
    """Both kinds of timers are claimed; calls are not."""
    await start(storage, "timeout", set_timer(2 * SECOND))
    await start(storage, "remove", set_timer(SECOND, remove=True))
    await storage.prepare_init([init("init", worker_id=None)], now=T0)
    found = await claim_timers(storage, now=LATER)
    assert [step.task.task_type for step in found] == [TaskType.REMOVE, TaskType.TIMEOUT]
    assert [step.task.scheduled_time for step in found] == [T0 + SECOND, T0 + 2 * SECOND]
    assert {step.task.running_time for step in found} == {LATER}
    assert tables.outline("timeout")[-1] == ("timeout", "running")


async def test_earliest_first_up_to_the_limit(storage: Storage) -> None:
    """The limit takes those that are due longest."""
    for process_id, after in (("c", 3), ("a", 1), ("b", 2)):
        await start(storage, process_id, set_timer(after * SECOND))
    first = await claim_timers(storage, 2, now=LATER)
    assert [step.task.process_id for step in first] == ["a", "b"]
    rest = await claim_timers(storage, 2, now=LATER)
    assert [step.task.process_id for step in rest] == ["c"]


async def test_same_time_in_order_of_setting(storage: Storage) -> None:
    """Timers of one time run in the order in which they were set."""
    for process_id in ("b", "a", "c"):
        await start(storage, process_id, set_timer(SECOND))
    found = await claim_timers(storage, now=LATER)
    assert [step.task.process_id for step in found] == ["b", "a", "c"]


async def test_busy_process_is_left(storage: Storage) -> None:
    """While a call runs or waits, the timer is not claimed; afterwards it is."""
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request())
    assert await claim_timers(storage, now=LATER) == []
    await wait(storage, request())
    await save(storage, step, resume(), keeps_slot=False, now=LATER)
    assert await claim_timers(storage, now=LATER) == []
    (last,) = await claim_calls(storage, now=LATER)
    await save(storage, last, resume(), keeps_slot=False, now=LATER)
    assert len(await claim_timers(storage, now=LATER)) == 1


async def test_paused_namespace(storage: Storage, tables: Tables) -> None:
    """In a paused namespace no timer is claimed until it goes on."""
    await start(storage, "p1", set_timer(SECOND))
    tables.set_namespace(paused=True)
    assert await claim_timers(storage, now=LATER) == []
    tables.set_namespace(paused=False)
    assert len(await claim_timers(storage, now=LATER)) == 1


async def test_large_states_come_as_far_as_there_is_room(storage: Storage) -> None:
    """Of timers of processes with large states a claim hands out what has room; the others wait on."""
    for name in ("p1", "p2", "p3"):
        await start(storage, name, set_timer(SECOND, aux_state=b"x" * 100_000))
    now = T0 + SECOND
    found = await storage.search("timers", NS, 100, worker_id=WORKER, lease=number(), room=150_000, now=now)
    assert [len(each.process.aux_state or b"") for each in found] == [100_000, 100_000]
    assert len(await claim_timers(storage, now=now)) == 1


async def test_timers_that_are_left(storage: Storage) -> None:
    """Those of others are claimed, earliest first; so are removals, which have no function."""
    for process_id, name in (("p1", "dunning"), ("p2", "trial"), ("p3", "")):
        await start(storage, process_id, set_timer(SECOND, name=name))
    await start(storage, "p4", set_timer(SECOND, name="dunning", remove=True))
    left = ["timeout dunning", "timeout", "call trial"]
    found = await storage.search("timers", NS, 9, worker_id=WORKER, lease=number(), left=left, now=LATER)
    assert [each.task.function for each in found] == ["timeout trial", "remove"]
    others = await claim_timers(storage, now=LATER)
    assert [each.task.function for each in others] == ["timeout dunning", "timeout"]
