"""What waits in mailboxes is counted, also behind other requests, and it is estimated until when."""

from __future__ import annotations

from datetime import datetime, timedelta

from psycopg import sql

from progressor.monitoring import Mailbox
from progressor.storage.operations import Storage
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    break_process,
    hold,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)


async def let_wait(storage: Storage, process_id: str, many: int) -> None:
    """So many requests wait on a process, one a second from T0 on."""
    for number in range(many):
        await wait(storage, request(process_id, worker_id=None), now=T0 + number * SECOND)


async def test_what_waits_behind_a_step_that_runs(storage: Storage) -> None:
    """Nothing can be claimed, and all the same it waits."""
    await start(storage, "p1")
    await hold(storage, request(), now=T0)
    await let_wait(storage, "p1", 3)
    assert (await storage.backlog(NS, most=10)).calls.tasks == 0
    found = await storage.waiting(NS, now=T0 + 10 * SECOND)
    assert (found.requests, found.at_least, found.age) == (3, False, 10 * SECOND)
    assert found.deepest == (Mailbox("p1", 3, False, 10 * SECOND, None),)


async def test_what_waits_behind_what_could_run(storage: Storage) -> None:
    """A head that nobody takes has others behind it; timers are no requests."""
    await start(storage, "timed", set_timer(SECOND))
    await start(storage, "p1", set_timer(SECOND))
    await let_wait(storage, "p1", 2)
    await start(storage, "p2")
    await let_wait(storage, "p2", 1)
    await break_process(storage, "broken")
    found = await storage.waiting(NS, now=T0 + 10 * SECOND)
    assert (found.requests, found.age) == (3, 10 * SECOND)
    assert [(each.process_id, each.requests) for each in found.deepest] == [("p1", 2), ("p2", 1)]


async def test_where_nothing_waits(storage: Storage) -> None:
    """Nor in a namespace that nobody knows."""
    await start(storage, "p1", set_timer(SECOND))
    for namespace in (NS, "nobody.knows"):
        found = await storage.waiting(namespace)
        assert (found.requests, found.at_least, found.age, found.deepest) == (0, False, timedelta(), ())
        assert found.through_in(0) == timedelta()


async def test_other_namespaces_are_not_counted(storage: Storage, tables: Tables) -> None:
    """Neither behind steps of theirs, nor their heads."""
    tables.set_namespace("shop.other")
    for process_id in ("p1", "p2"):
        await start(storage, process_id, namespace="shop.other")
    await hold(storage, request("p1", namespace="shop.other"), now=T0)
    for process_id in ("p1", "p2"):
        await wait(storage, request(process_id, namespace="shop.other", worker_id=None))
    assert (await storage.waiting(NS)).requests == 0
    assert (await storage.waiting("shop.other")).requests == 2


def fill(tables: Tables, process_no: int, many: int, *, now: datetime = T0) -> None:
    """So many requests wait on a new process, behind one that could run."""
    namespace = sql.SQL("(SELECT namespace_no FROM namespaces WHERE name = {})").format(NS)
    tables.connection.execute(
        sql.SQL(
            """
            INSERT INTO processes (
                process_no, namespace_no, process_id, status, status_changed_at, created_at
            )
            OVERRIDING SYSTEM VALUE
            VALUES ({no}, {namespace}, 'deep-' || {no}, 'running', {now}, {now});

            INSERT INTO schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
            SELECT {no}, {no} * 10000000::bigint + n, {namespace}, 'call', {now}, n = 1
            FROM generate_series(1, {many}) AS n;
            """
        ).format(no=process_no, namespace=namespace, now=now, many=many)
    )


async def test_counts_have_bounds(storage: Storage, tables: Tables) -> None:
    """The deepest are counted to 100,000, all others to 100; where a count stopped, there is more.

    Of those with more than 100 the ones whose oldest request waits longest come first.
    """
    tables.set_namespace()
    for number in range(1, 8):
        fill(tables, 1000 + number, 100 + number)
    found = await storage.waiting(NS, now=T0)
    assert (found.at_least, len(found.deepest)) == (True, 5)
    assert found.requests == 2 * 100 + sum(each.requests for each in found.deepest)
    fill(tables, 2000, 100_001, now=T0 - SECOND)
    (deep, *_) = (await storage.waiting(NS, now=T0)).deepest
    assert (deep.process_id, deep.requests, deep.at_least) == ("deep-2000", 100_000, True)
    tables.execute("TRUNCATE processes, schedule, tasks, running")


async def test_the_oldest_is_listed_however_shallow_its_mailbox_is(
    storage: Storage, tables: Tables
) -> None:
    """A request that waits behind a step that hangs is seen, be others ever so deep."""
    await start(storage, "hangs")
    await hold(storage, request("hangs"), now=T0)
    await wait(storage, request("hangs", worker_id=None), now=T0 - SECOND)
    for number in range(1, 7):
        fill(tables, 1000 + number, 10)
    found = await storage.waiting(NS, now=T0)
    assert (found.deepest[-1].process_id, found.deepest[-1].requests) == ("hangs", 1)
    assert (found.requests, found.at_least) == (61, False)
    tables.execute("TRUNCATE processes, schedule, tasks, running")


async def test_until_when_a_mailbox_is_through(storage: Storage, tables: Tables) -> None:
    """At the pace of its last requests: three ended within four seconds, four wait."""
    await start(storage, "p1")
    # Long before.
    tables.execute("UPDATE tasks SET finished_time = finished_time - interval '1 hour'")
    for number in range(3):
        step = await hold(storage, request(), now=T0 + number * SECOND)
        if number == 2:
            await let_wait(storage, "p1", 5)
        await save(storage, step, resume(), now=T0 + number * SECOND)
    now = T0 + 4 * SECOND
    found = await storage.mailbox(NS, "p1", now=now)
    # One of the five runs by now.
    assert found == Mailbox("p1", 4, False, 3 * SECOND, 8 * SECOND)
    assert (await storage.waiting(NS, now=now)).deepest == (found,)
    assert await storage.mailbox(NS, "nobody") is None


async def test_an_unknown_pace(storage: Storage) -> None:
    """What ended longer ago than ten minutes says nothing of the pace."""
    await start(storage, "p1")
    for _ in range(3):
        await save(storage, await hold(storage, request(), now=T0), resume(), now=T0)
    await hold(storage, request(), now=T0)
    await let_wait(storage, "p1", 2)
    soon = await storage.waiting(NS, now=T0 + 3 * SECOND)
    late = await storage.waiting(NS, now=T0 + timedelta(minutes=11))
    assert soon.deepest[0].through_in == 2 * SECOND
    assert late.deepest[0].through_in is None
    # At sixty steps a minute its two take as long as they take alone; without steps nobody knows.
    assert (soon.through_in(60), soon.through_in(1), soon.through_in(0)) == (2 * SECOND, 120 * SECOND, None)
    assert late.through_in(60) is None
