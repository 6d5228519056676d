"""A mailbox too long for one transaction: its process breaks at once, the rest is cancelled later."""

from __future__ import annotations

import pytest

from progressor.model import ProcessStatus, TaskType
from progressor.storage.operations import Storage
from progressor.storage.steps.zombies import FROM_THE_START
from progressor.storage.values import Continue, NotPrepared, Postpone, Reason, most_cancelled
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    check_invariants,
    claim_calls,
    claim_timers,
    collect,
    fail,
    hold,
    prepare,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
)

MOST = most_cancelled(1)
LEFT = 50
_FILL = """
WITH filled AS (
    INSERT INTO tasks (process_no, task_type, status, scheduled_time, name, idempotency_key, reply_to)
    SELECT p.process_no, 'notify', 'waiting', %s, 'pay', 'filled-' || n, 61
    FROM processes AS p CROSS JOIN generate_series(1, %s) AS n
    WHERE p.process_id = 'p1'
    RETURNING process_no, task_id, scheduled_time
)
INSERT INTO schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
SELECT f.process_no, f.task_id, p.namespace_no, 'notify', f.scheduled_time, FALSE
FROM filled AS f JOIN processes AS p USING (process_no)
"""


async def broken(storage: Storage, tables: Tables, *, lost: bool) -> None:
    """Break a process, on which more waits than one transaction cancels, by its step or a lost worker."""
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request())
    tables.execute(_FILL, T0, MOST + LEFT)
    if not lost:
        await save(storage, step, fail())
        return
    tables.set_worker()
    tables.set_collector()
    tables.set_namespace(on_zombie="error")
    (zombie,) = await collect(storage, T0 + 60 * SECOND)
    assert zombie.process_id == "p1"


def count(tables: Tables, status: str) -> int:
    (row,) = tables.execute(
        "SELECT count(*) AS n FROM tasks WHERE status::text = %s AND task_type = 'notify'", status
    )
    return int(row["n"])


@pytest.mark.parametrize("lost", [False, True])
async def test_it_breaks_at_once(storage: Storage, tables: Tables, dsn: str, lost: bool) -> None:
    """From the first piece on it is broken: nothing that is left runs, and no request is accepted."""
    await broken(storage, tables, lost=lost)
    row = tables.process()
    assert row is not None
    assert row["status"] == ProcessStatus.ERROR
    assert count(tables, "waiting") == LEFT
    late = T0 + 60 * SECOND
    assert (await claim_calls(storage, now=late), await claim_timers(storage, now=late)) == ([], [])
    (refused,) = await prepare(storage, request())
    assert refused == NotPrepared(Reason.BROKEN, row["detail"])
    check_invariants(dsn)


async def test_what_is_left_is_cancelled(storage: Storage, tables: Tables, dsn: str) -> None:
    """Whoever waits for it is told why, and then there is nothing to do; the timer stays held."""
    await broken(storage, tables, lost=False)
    done = await storage.cancel_stranded(FROM_THE_START, now=T0)
    assert (done.more, done.reason, len(done.cancelled)) == (True, "ValueError: no", LEFT)
    assert {ref.namespace for ref in done.cancelled} == {NS}
    assert count(tables, "waiting") == 0
    assert count(tables, "cancelled") == MOST + LEFT
    again = await storage.cancel_stranded(done.place or FROM_THE_START, now=T0)
    assert (again.more, again.cancelled) == (False, ())
    assert again.place is not None
    assert (await storage.cancel_stranded(again.place, now=T0)).place is None
    assert [each["status"] for each in tables.schedule()] == ["held"]
    check_invariants(dsn)


async def test_no_repair_begins_before_that(storage: Storage, tables: Tables) -> None:
    """A process that runs again has none of the requests that were to be cancelled: it waits for that."""
    await broken(storage, tables, lost=False)
    refused = NotPrepared(Reason.STRANDED)
    assert await storage.prepare_repair([repair()], now=T0) == [refused]
    assert await storage.simple_repair([repair()], now=T0) == [refused]
    await storage.cancel_stranded(FROM_THE_START, now=T0)
    (begun,) = await storage.prepare_repair([repair(worker_id=None)], now=T0)
    assert isinstance(begun, Postpone)
    (step,) = await claim_calls(storage)
    assert step.task.task_type is TaskType.REPAIR
    # It is none of those that are left over.
    assert not (await storage.cancel_stranded(FROM_THE_START, now=T0)).more
    await save(storage, step, resume())
    (called,) = await prepare(storage, request())
    assert isinstance(called, Continue)


async def test_a_removed_process_takes_what_is_left_with_it(storage: Storage, tables: Tables) -> None:
    """Nothing is left to be cancelled."""
    await broken(storage, tables, lost=False)
    await storage.remove(NS, "p1")
    assert not (await storage.cancel_stranded(FROM_THE_START, now=T0)).more
    assert tables.schedule() == []
