"""Priorities: a higher one is claimed earlier, and a minute of waiting is worth a step of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from progressor.model import ProcessStatus, TaskType
from progressor.storage.operations import Storage
from progressor.storage.values import Request
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    T0,
    Tables,
    break_process,
    check_invariants,
    claim_calls,
    claim_timers,
    fail,
    hold,
    ids,
    init,
    prepare,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def holds(dsn: str) -> Iterator[None]:
    """The doctor finds nothing at the end of any of these."""
    yield
    check_invariants(dsn)


def call(process_id: str, priority: int = 0, **fields: Any) -> Request:
    """A call of which no worker knows yet."""
    return request(process_id, worker_id=None, priority=priority, **fields)


async def claimed(storage: Storage, *, now: datetime = T0) -> str | None:
    """The process whose request is claimed next, if there is one."""
    found = await claim_calls(storage, 1, now=now)
    return found[0].process.process_id if found else None


async def all_claimed(storage: Storage, *, now: datetime = T0) -> list[str]:
    found = []
    while (process_id := await claimed(storage, now=now)) is not None:
        found.append(process_id)
    return found


async def started(storage: Storage, *process_ids: str) -> None:
    for process_id in process_ids:
        await start(storage, process_id)


async def test_a_higher_one_goes_first(storage: Storage) -> None:
    """Among requests of one moment; those of one priority in the order of their acceptance."""
    await started(storage, "low", "plain", "plain too", "high")
    for process_id, priority in (("low", -1), ("plain", 0), ("plain too", 0), ("high", 10)):
        await wait(storage, call(process_id, priority))
    assert await all_claimed(storage) == ["high", "plain", "plain too", "low"]


async def test_starts_and_notices_have_one_too(storage: Storage, tables: Tables) -> None:
    """It stands with the task."""
    await started(storage, "plain", "notice")
    await wait(storage, call("plain"))
    await wait(storage, request("notice", TaskType.NOTIFY, worker_id=None, priority=1))
    ref = await wait(storage, init("start", worker_id=None, priority=2))
    row = tables.task(ref.task_id)
    assert row is not None
    assert row["priority"] == 2
    assert await all_claimed(storage) == ["start", "notice", "plain"]


async def test_a_minute_of_waiting_is_worth_a_step(storage: Storage) -> None:
    """What waits for longer than the difference is worth goes first."""
    await started(storage, "old", "new", "newer")
    await wait(storage, call("old"), now=T0)
    await wait(storage, call("new", 2), now=T0 + 2 * MINUTE - SECOND)
    await wait(storage, call("newer", 2), now=T0 + 2 * MINUTE + SECOND)
    assert await all_claimed(storage, now=T0 + 3 * MINUTE) == ["new", "old", "newer"]


async def test_the_least_urgent_waits_for_no_longer_than_all_steps_are_worth(storage: Storage) -> None:
    """Against a flood of the most urgent ones, as many as are claimed: twenty minutes, and one claim."""
    await started(storage, "least")
    await wait(storage, call("least", -10))
    pace, now, flood = timedelta(seconds=30), T0, 0
    while True:
        flood += 1
        await storage.prepare_init([init(f"most-{flood}", worker_id=None, priority=10)], now=now)
        process_id = await claimed(storage, now=now)
        if process_id == "least":
            break
        now += pace
        assert now <= T0 + 20 * MINUTE + pace
    assert now > T0 + 19 * MINUTE, "it did not go before its time either"


async def test_of_a_backlog_only_what_came_within_that_time_goes_before_it(storage: Storage) -> None:
    """However many there are."""
    await started(storage, "least")
    await wait(storage, call("least", -10))
    for minute in range(30):
        both = [init(f"{minute}-{number}", worker_id=None, priority=10) for number in range(2)]
        await prepare(storage, *both, now=T0 + minute * MINUTE)
    order = await all_claimed(storage, now=T0 + 30 * MINUTE)
    before = order[: order.index("least")]
    assert before == [f"{minute}-{number}" for minute in range(20) for number in range(2)]


async def test_the_order_of_a_mailbox_is_that_of_acceptance(storage: Storage) -> None:
    """Whatever the priorities; the first waits as if it was as urgent as the most urgent behind it."""
    await started(storage, "p", "other")
    await wait(storage, call("other", 5))
    first = await wait(storage, call("p", -3))
    second = await wait(storage, call("p", 7))
    third = await wait(storage, call("p", 9))
    for ref in (first, second, third):
        (step,) = await claim_calls(storage, 1)
        assert step.task.task_id == ref.task_id
        await save(storage, step, resume(), keeps_slot=False)
    assert await claimed(storage) == "other"


async def test_a_plain_request_hastens_one_that_can_wait(storage: Storage) -> None:
    """It waits no longer behind it than elsewhere."""
    await started(storage, "p", "other")
    await wait(storage, call("p", -10))
    await wait(storage, call("p"))
    await wait(storage, call("other"), now=T0 + SECOND)
    assert await claimed(storage, now=T0 + SECOND) == "p"


async def test_those_of_one_batch_hasten_the_first_of_them(storage: Storage) -> None:
    """Also where all come at once."""
    await started(storage, "p", "other")
    await wait(storage, call("other", 3))
    await storage.prepare_call([call("p", -1), call("p", 4), call("p")], now=T0)
    assert await all_claimed(storage) == ["p", "other"]


async def test_the_next_of_a_step_is_as_urgent_as_those_behind_it(storage: Storage) -> None:
    """Where its worker gives its slot back, or goes on with nothing because of a pause."""
    await started(storage, "p", "other")
    step = await hold(storage, request("p"))
    await wait(storage, call("p"))
    await wait(storage, call("p", 6))
    await wait(storage, call("other", 5))
    await save(storage, step, resume(), keeps_slot=False)
    assert await all_claimed(storage) == ["p", "other"]


async def test_what_is_handed_back_keeps_its_priority(storage: Storage) -> None:
    """And waits for those behind it too."""
    await started(storage, "p", "q", "other")
    await wait(storage, call("other", 5))
    (high, plain) = [
        await hold(storage, request(process_id, priority=priority))
        for process_id, priority in (("p", 6), ("q", 0))
    ]
    await wait(storage, call("q", 7))
    await storage.hand_back([high.task, plain.task])
    assert await all_claimed(storage) == ["q", "p", "other"]


async def test_a_timer_that_goes_back_lets_the_urgent_go_first(storage: Storage) -> None:
    """The request that came while it ran."""
    await start(storage, "p", set_timer(SECOND))
    await started(storage, "other")
    (timer,) = await claim_timers(storage, now=T0 + SECOND)
    await wait(storage, call("p"))
    await wait(storage, call("p", 6))
    await wait(storage, call("other", 5))
    await storage.hand_back([timer.task])
    assert await all_claimed(storage) == ["p", "other"]


async def test_timers_keep_their_order(storage: Storage, tables: Tables) -> None:
    """They have no order time, and a request blocks them as ever."""
    await start(storage, "p", set_timer(SECOND))
    await start(storage, "q", set_timer(2 * SECOND))
    await wait(storage, call("p", 10))
    assert len(await claim_timers(storage, now=T0 + 5 * SECOND)) == 1
    (step,) = await claim_calls(storage)
    await save(storage, step, resume(), keeps_slot=False)
    assert len(await claim_timers(storage, now=T0 + 5 * SECOND)) == 1
    assert tables.execute("SELECT FROM schedule WHERE order_time IS NOT NULL") == []


async def test_a_repair_has_none(storage: Storage) -> None:
    """It waits as a request of priority 0."""
    await break_process(storage, "broken")
    await started(storage, "high", "plain")
    await wait(storage, repair("broken", worker_id=None))
    await wait(storage, call("plain"))
    await wait(storage, call("high", 1))
    assert await all_claimed(storage) == ["high", "broken", "plain"]


async def test_an_init_that_runs_anew_keeps_its_own(storage: Storage) -> None:
    """After a repair with a handler and after one without."""
    for process_id in ("simple", "handled"):
        broken = await hold(storage, init(process_id, priority=3))
        await save(storage, broken, fail())
    await started(storage, "other")
    await wait(storage, call("other", 2))
    await storage.simple_repair([repair("simple")], now=T0)
    step = await hold(storage, repair("handled"))
    await save(storage, step, resume(status=ProcessStatus.INIT), keeps_slot=False)
    assert await all_claimed(storage) == ["simple", "handled", "other"]


async def test_a_worker_that_leaves_some_functions_claims_in_this_order_too(storage: Storage) -> None:
    """What it may take, the most urgent first."""
    await started(storage, "low", "high", "left")
    await wait(storage, call("low", -1, name="a"))
    await wait(storage, call("high", 1, name="a"))
    await wait(storage, call("left", 9, name="b"))
    found = []
    for lease in (1, 2, 3):
        found += await storage.search(
            "calls", NS, 1, worker_id=OTHER_WORKER, lease=lease, left=["call b"], now=T0
        )
    assert [each.process.process_id for each in found] == ["high", "low"]


async def test_rows_of_an_older_release_have_priority_0(storage: Storage, dsn: str) -> None:
    """It writes no order time: they stand where they were accepted."""
    await started(storage, "high", "old", "plain")
    await wait(storage, call("plain"), now=T0 + SECOND)
    await wait(storage, call("high", 1), now=T0 + SECOND)
    old = await wait(storage, call("old", -5))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE progressor.schedule SET order_time = NULL WHERE task_id = %s", [old.task_id]
        )
    assert await all_claimed(storage, now=T0 + SECOND) == ["high", "old", "plain"]
    assert ids(await claim_calls(storage)) == []
