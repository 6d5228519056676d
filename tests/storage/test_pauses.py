"""A pause between the steps of a process: its next task is held until it is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from progressor.model import ProcessStatus
from progressor.storage.operations import Storage
from progressor.storage.values import Continue, Saved
from progressor.timers import SetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    Held,
    Tables,
    change_timers,
    claim_calls,
    claim_timers,
    fail,
    fuse,
    hold,
    ids,
    init,
    refuse,
    repair,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
    wait,
)

PAUSE = 10 * SECOND
OVER = T0 + PAUSE


async def rest(storage: Storage, step: Held, decision: object = None, *, now: datetime = T0) -> Saved:
    """Save a step, after which the process rests."""
    ended = step.step(decision or resume(), keeps_slot=False)._replace(pause=PAUSE)  # type: ignore[arg-type]
    (saved,) = await storage.save_result([ended], now=now)
    assert isinstance(saved, Saved)
    return saved


def standing(tables: Tables) -> list[tuple[str, bool, datetime | None]]:
    return [(row["task_type"], row["claimable"], row["held_time"]) for row in tables.schedule()]


async def ripe(storage: Storage, now: datetime = OVER, limit: int = 100) -> int:
    return await storage.ripen(NS, limit=limit, now=now)


async def test_a_request_that_waits_is_held(storage: Storage, tables: Tables) -> None:
    """It is not claimed before the pause is over, and nor is one that comes meanwhile."""
    first = await hold(storage, init())
    ref = await wait(storage, request())
    saved = await rest(storage, first)
    assert (saved.continuation, saved.due) == (None, OVER)
    later = await wait(storage, request(), now=T0 + SECOND)
    assert standing(tables) == [("call", False, OVER), ("call", False, None)]
    assert await ripe(storage, OVER - timedelta(microseconds=1)) == 0
    assert await claim_calls(storage, now=OVER) == []
    assert await ripe(storage) == 1
    assert ids(await claim_calls(storage, now=OVER)) == [ref.task_id]
    assert later.task_id > ref.task_id


async def test_a_request_that_comes_is_held(storage: Storage, tables: Tables) -> None:
    """Though a worker has a slot for it; after the pause it runs at once."""
    await rest(storage, await hold(storage, init()))
    await wait(storage, request(), now=OVER - timedelta(microseconds=1))
    assert standing(tables) == [("call", False, OVER)]
    assert await ripe(storage) == 1
    (call,) = await claim_calls(storage, now=OVER)
    await rest(storage, call, now=OVER)
    await hold(storage, request(), now=OVER + PAUSE)


async def test_a_timer_waits_for_the_end_of_the_pause(storage: Storage, tables: Tables) -> None:
    """One that is due later waits for its own time alone."""
    saved = await rest(storage, await hold(storage, init()), set_timer(SECOND))
    assert (saved.due, standing(tables)) == (OVER, [("timeout", False, OVER)])
    assert await claim_timers(storage, now=OVER) == []
    assert await ripe(storage) == 1
    (timer,) = await claim_timers(storage, now=OVER)
    assert timer.task.scheduled_time == T0 + SECOND
    await rest(storage, timer, set_timer(PAUSE), now=OVER)
    assert standing(tables) == [("timeout", True, None)]


async def test_timers_of_several_names(storage: Storage, tables: Tables) -> None:
    """The earliest is held; a request that comes takes its place, and gives it back."""
    several = change_timers(SetTimer(after=SECOND, name="a"), SetTimer(after=PAUSE, name="b"))
    await rest(storage, await hold(storage, init()), several)
    assert standing(tables) == [("timeout", False, OVER), ("timeout", False, None)]
    await wait(storage, request())
    assert [row[2] for row in standing(tables)] == [None, None, OVER]
    await ripe(storage)
    (call,) = await claim_calls(storage, now=OVER)
    await rest(storage, call, now=OVER)
    assert [row[2] for row in standing(tables)] == [OVER + PAUSE, None]


async def test_a_refused_call_and_a_retry_are_steps_too(storage: Storage, tables: Tables) -> None:
    """Their processes do not change, but rest."""
    await start(storage)
    await rest(storage, await hold(storage, request()), refuse())
    await wait(storage, request(), now=T0 + SECOND)
    await ripe(storage)
    (call,) = await claim_calls(storage, now=OVER)
    await save(storage, call, set_timer(timedelta(0)), keeps_slot=False, now=OVER)
    (timer,) = await claim_timers(storage, now=OVER)
    saved = await rest(storage, timer, retry(), now=OVER)
    assert saved.due == OVER + PAUSE
    assert standing(tables) == [("timeout", False, OVER + PAUSE)]


async def test_a_repair_waits_for_no_pause(storage: Storage, tables: Tables) -> None:
    """It begins at once; after a repair without a handler the process rests no more."""
    await rest(storage, await hold(storage, init()))
    process = tables.process()
    assert process is not None
    assert process["rests_until"] == OVER
    await wait(storage, request())
    await ripe(storage)
    (call,) = await claim_calls(storage, now=OVER)
    await rest(storage, call, fail(), now=OVER)
    await save(storage, await hold(storage, repair(), now=OVER), resume(), now=OVER)
    await hold(storage, request(), now=OVER)


async def test_a_repair_without_a_handler_ends_the_pause(storage: Storage) -> None:
    """What comes next runs at once."""
    await start(storage)
    await rest(storage, await hold(storage, request()), fail())
    await storage.simple_repair([repair(worker_id=None)], now=T0)
    await hold(storage, request())


async def test_a_process_that_rests_is_not_fused(storage: Storage) -> None:
    """Nor is one in whose namespace steps are still saved with a pause by other workers."""

    async def none(_held: object) -> list[None]:
        raise AssertionError("it must not run")

    await rest(storage, await hold(storage, init()))
    assert await fuse(storage, [request()], none, now=T0 + SECOND) == [None]
    assert await fuse(storage, [request()], none, now=OVER) == [None]
    # A worker without a pause saves a step: the next one may be.
    await save(storage, await hold(storage, request(), now=OVER), resume(aux_state=b"new"), now=OVER)
    (outcome,) = await fuse(storage, [request()], _goes_on, now=OVER)
    assert isinstance(outcome, Continue)


async def _goes_on(_held: object) -> list[None]:
    return [None]


async def test_a_scanner_counts_what_is_held(storage: Storage) -> None:
    """When it may be released next, and that it may be now: a worker is then woken for timers."""
    await rest(storage, await hold(storage, init()))
    await wait(storage, request())
    before = await storage.backlog(NS, most=10, now=T0)
    assert (before.calls.tasks, before.timers.tasks, before.next_due) == (0, 0, PAUSE)
    after = await storage.backlog(NS, most=10, now=OVER)
    assert (after.calls.tasks, after.timers.tasks, after.next_due) == (0, 1, None)
    assert (await storage.waiting(NS)).requests == 1


async def test_many_are_released_in_rounds(storage: Storage) -> None:
    """The longest held first; those of other namespaces, and locked ones, are left alone."""
    for name in ("p1", "p2", "p3"):
        await rest(storage, await hold(storage, init(name)), set_timer(SECOND), now=T0)
    assert await storage.ripen("shop.other", limit=9, now=OVER) == 0
    assert [await ripe(storage, limit=2), await ripe(storage, limit=2), await ripe(storage)] == [2, 1, 0]
    assert len(await claim_timers(storage, now=OVER)) == 3


async def test_a_broken_process_holds_nothing_until_a_time(storage: Storage, tables: Tables) -> None:
    """Its timers wait for the repair, whatever the pause."""
    await start(storage, "p1", set_timer(SECOND))
    await rest(storage, await hold(storage, request()), fail())
    assert standing(tables) == [("timeout", False, None)]
    process = tables.process()
    assert process is not None
    assert process["status"] == ProcessStatus.ERROR
    assert await ripe(storage) == 0
