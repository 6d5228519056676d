"""What steps and operators do is appended to the feed with it, once, and nothing else is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from progressor import Client, Engine, Namespace, Process, Reject, RetryPolicy
from progressor.errors import HandlerFailed, Rejected
from progressor.model import Decision
from progressor.storage.operations import Storage
from progressor.storage.values import LostLease, Step
from tests import support
from tests.acceptance.support import until
from tests.support import T0, Tables

_ITEMS = """
SELECT f.namespace, i.process_id, i.kind, i.last_event_id, i.event_count
FROM progressor.feed AS f
CROSS JOIN LATERAL unnest(
    f.process_ids, regexp_split_to_array(f.kinds, ''), f.last_event_ids, f.event_counts
) AS i (process_id, kind, last_event_id, event_count)
ORDER BY f.feed_id
"""
_LEFT = """
SELECT count(*) FROM progressor.events AS e JOIN progressor.feed_leftovers USING (process_no)
WHERE kept_until BETWEEN now() + interval '6 days' AND now() + interval '8 days'
"""

order = Namespace("order", state=int, feed=True, retry_policy=RetryPolicy(max_attempts=1))
quiet = Namespace("quiet", state=int)


@order.init
@quiet.init
async def begin(process: Process[int], item: str) -> str:
    """Begin, or refuse, or fail."""
    if item == "refused":
        raise Reject("no")
    if item == "broken":
        raise RuntimeError("no")
    process.state = 0
    process.emit("begun", item=item)
    return item


@order.call
@quiet.call
async def pay(process: Process[int], amount: int) -> int:
    """Pay, with two events."""
    if amount < 0:
        raise Reject("less than nothing")
    if amount == 0:
        raise RuntimeError("nothing")
    process.state = (process.state or 0) + amount
    process.emit("paid", amount=amount)
    process.emit("counted")
    return process.state


@order.call
async def look(process: Process[int]) -> int:
    """Return the state, and change nothing."""
    return process.state or 0


@order.call
async def end(process: Process[int]) -> None:
    """Remove the process."""
    process.emit("ended")
    process.remove()


@order.call
async def end_later(process: Process[int]) -> None:
    """Have a timer remove the process."""
    process.emit("ended")
    process.set_timer(after=timedelta(), remove=True)


@order.timeout
async def ring(process: Process[int]) -> None:
    """Fire, with an event."""
    process.emit("rang")


@order.call
async def arm(process: Process[int]) -> None:
    """Set the timer."""
    process.set_timer(after=timedelta())


@order.repair
async def mend(process: Process[int], args: Any = None) -> None:
    """Mend it, with an event."""
    process.emit("mended")


@pytest.fixture
async def engine(dsn: str) -> AsyncIterator[Engine]:
    """An engine with both namespaces."""
    async with Engine(dsn, [order, quiet]) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Client:
    """Its client."""
    return engine.client


def items(dsn: str) -> list[tuple[Any, ...]]:
    """The items of the feed, but for the namespace, of which there is one."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(_ITEMS).fetchall()
    assert {row[0] for row in rows} <= {"order"}
    return [row[1:] for row in rows]


async def test_a_life(client: Client, dsn: str) -> None:
    """Each step that changed something, with the range of its events; nothing where there is no feed."""
    await client.start("order", "o-1", "tea")
    await client.call("order", "o-1", "pay", 3)
    assert await client.call("order", "o-1", "look") == 3
    with pytest.raises(Rejected):
        await client.call("order", "o-1", "pay", -1)
    await client.call("order", "o-1", "end")
    await client.start("quiet", "q-1", "tea")
    await client.call("quiet", "q-1", "pay", 3)
    assert items(dsn) == [("o-1", "c", 1, 1), ("o-1", "s", 3, 2), ("o-1", "r", 4, 1)]


async def test_the_events_of_a_removed_process_stay(client: Client, dsn: str) -> None:
    """For a week, those of its last step too; of a process without a feed none stays."""
    for namespace in ("order", "quiet"):
        await client.start(namespace, "o-1", "tea")
    await client.call("order", "o-1", "end")
    await client.remove("quiet", "o-1")
    with psycopg.connect(dsn) as connection:
        assert connection.execute(_LEFT).fetchall() == [(2,)]
        payloads = connection.execute("SELECT payload FROM progressor.events ORDER BY event_id").fetchall()
    assert [json.loads(payload) for (payload,) in payloads] == [{"item": "tea"}, {}]


async def test_what_an_operator_removes(client: Client, dsn: str) -> None:
    """It is told, and the events are gone at once."""
    await client.start("order", "o-1", "tea")
    await client.remove("order", "o-1")
    assert items(dsn) == [("o-1", "c", 1, 1), ("o-1", "r", 1, 0)]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM progressor.events").fetchall() == [(0,)]


async def test_what_breaks_and_is_mended(client: Client, dsn: str) -> None:
    """By its handler, or back to running without one."""
    await client.start("order", "o-1", "tea")
    with pytest.raises(HandlerFailed):
        await client.call("order", "o-1", "pay", 0)
    await client.repair("order", "o-1")
    with pytest.raises(HandlerFailed):
        await client.call("order", "o-1", "pay", 0)
    await client.simple_repair("order", "o-1")
    kinds = [("c", 1, 1), ("b", 1, 0), ("p", 2, 1), ("b", 2, 0), ("p", 2, 0)]
    assert items(dsn) == [("o-1", *each) for each in kinds]


async def test_a_bulk_without_a_handler(client: Client, dsn: str) -> None:
    """Each process that it puts back to running is told as repaired."""
    await client.start("order", "o-1", "tea")
    with pytest.raises(HandlerFailed):
        await client.call("order", "o-1", "pay", 0)
    await client.repair_all("order", simple=True)
    await until_fed(dsn, ("c", 1, 1), ("b", 1, 0), ("p", 1, 0))


async def test_a_start_that_does_not_succeed(client: Client, dsn: str) -> None:
    """One that is refused was never there; one that failed is broken."""
    with pytest.raises(Rejected):
        await client.start("order", "o-1", "refused")
    with pytest.raises(HandlerFailed):
        await client.start("order", "o-2", "broken")
    assert items(dsn) == [("o-2", "b", 0, 0)]


@order.call
async def with_rows(process: Process[int], *, connection: AsyncConnection) -> None:
    """Write in the transaction of the step."""
    await connection.execute(text("CREATE TABLE own (name text)"))
    async with connection.begin_nested():
        await connection.execute(text("INSERT INTO own VALUES ('mine')"))
    await connection.execute(text("SAVEPOINT left_open"))
    process.emit("written")


async def until_fed(dsn: str, *kinds: tuple[str, int, int]) -> None:
    """Return once the feed has these items of the one process, and no others."""

    async def read() -> list[tuple[Any, ...]]:
        return items(dsn)

    found = await until(read, lambda found: len(found) >= len(kinds))
    assert found == [("o-1", *each) for each in kinds]


async def test_timers(client: Client, dsn: str) -> None:
    """A step of a timer, with its event; a removal by a timer has none."""
    await client.start("order", "o-1", "tea")
    await client.call("order", "o-1", "arm")
    await until_fed(dsn, ("c", 1, 1), ("s", 2, 1))
    await client.call("order", "o-1", "end_later")
    await until_fed(dsn, ("c", 1, 1), ("s", 2, 1), ("s", 3, 1), ("r", 3, 0))


async def test_own_rows(client: Client, dsn: str) -> None:
    """A step in the transaction of its handler."""
    await client.start("order", "o-1", "tea")
    await client.call("order", "o-1", "with_rows")
    await until_fed(dsn, ("c", 1, 1), ("s", 2, 1))


async def test_a_crowd(client: Client, dsn: str) -> None:
    """Of many processes at once each step is there once, in their order; a row has several."""
    names = [f"o-{number}" for number in range(100)]
    await asyncio.gather(*(client.start("order", name, "tea") for name in names))
    await asyncio.gather(*(client.call("order", name, "pay", 1) for name in names for _ in range(5)))
    found = items(dsn)
    for name in names:
        assert [each[2] for each in found if each[0] == name] == [1, 3, 5, 7, 9, 11]
    with psycopg.connect(dsn) as connection:
        ((rows,),) = connection.execute("SELECT count(*) FROM progressor.feed").fetchall()
    assert rows < len(found) / 2


async def test_what_comes_from_elsewhere(client: Client, dsn: str) -> None:
    """A process that is put or imported is created, without events: they did not happen here."""
    await client.put("order", "o-1", state=3, events=[{"item": "tea"}])
    (whole,) = (await client.export_processes("order", process_id="o-1")).processes
    await client.import_processes([whole])
    await client.remove("order", "o-1")
    await client.import_processes([whole])
    await client.import_processes([whole])
    await until_fed(dsn, ("c", 1, 0), ("r", 1, 0), ("c", 1, 0))


async def test_a_lost_worker(storage: Storage, tables: Tables, dsn: str) -> None:
    """A collector that breaks its process says so, once."""
    tables.set_namespace("order")
    tables.execute("UPDATE progressor.namespaces SET options = options || '{\"feed\": true}'")
    tables.set_worker()
    tables.set_collector()
    await support.hold(storage, support.init("o-1", namespace="order"))
    for _ in range(2):
        await support.collect(storage, T0 + timedelta(minutes=1), lease_age=timedelta(seconds=30))
    await until_fed(dsn, ("b", 0, 0))


async def test_when_a_lost_worker_broke_its_process(storage: Storage, tables: Tables) -> None:
    """At the time that the process has it, by which one who begins at the beginning knows what was told."""
    tables.set_namespace("order")
    tables.execute("UPDATE progressor.namespaces SET options = options || '{\"feed\": true}'")
    then = datetime(2020, 1, 1, tzinfo=UTC)
    tables.set_worker(seen_at=then)
    tables.set_collector()
    await support.hold(storage, support.init("o-1", namespace="order"), now=then)
    seen = support.evidence(then + timedelta(hours=1), since=then)
    # By the clock of the database: each statement has a time of its own.
    minute = timedelta(minutes=1)
    assert await storage.collect_zombies(seen, lease_age=minute, grace=minute)
    (fed,) = tables.execute("SELECT appended_at FROM feed")
    (broken,) = tables.execute("SELECT status_changed_at FROM processes")
    assert list(fed.values()) == list(broken.values())


async def test_a_step_that_is_saved_twice(storage: Storage, tables: Tables, dsn: str) -> None:
    """A save that is repeated after a lost answer appends nothing twice, and what was not saved at last."""
    tables.set_namespace("order")
    held = await support.hold(storage, support.init("o-1", namespace="order"))
    step = Step(held.task, held.process, support.resume()._replace(feeds=True))
    for tried in (False, True, True):
        await storage.save_result([step], tried=tried, now=T0)
    await until_fed(dsn, ("c", 0, 0))
    held = await support.hold(storage, support.request("o-1", namespace="order"))
    step = Step(held.task, held.process, support.resume(events=support.events(1))._replace(feeds=True))
    await storage.save_result([step], tried=True, now=T0)
    await until_fed(dsn, ("c", 0, 0), ("s", 1, 1))


@pytest.mark.parametrize("ends", [support.resume, support.removed, support.cancel])
async def test_a_first_try_that_comes_late(
    storage: Storage, tables: Tables, dsn: str, ends: Callable[..., Decision]
) -> None:
    """What a pooler delivers after the try that has saved the step appends nothing."""
    tables.set_namespace("order")
    decision = ends(events=support.events(1), feeds=True)
    held = await support.hold(storage, support.init("o-1", namespace="order"))
    for tried in (True, False):
        await storage.save_result([Step(held.task, held.process, decision)], tried=tried, now=T0)
    letter = "r" if ends is support.removed else "c"
    await until_fed(dsn, (letter, 1, 1))


async def test_a_step_without_its_lease(storage: Storage, tables: Tables, dsn: str) -> None:
    """What nobody saved is not in the feed."""
    tables.set_namespace("order")
    held = await support.hold(storage, support.init("o-1", namespace="order"))
    task = held.task._replace(lease=(held.task.lease or 0) + 1)
    step = Step(task, held.process, support.resume()._replace(feeds=True))
    for tried in (False, True):
        (lost,) = await storage.save_result([step], tried=tried, now=T0)
        assert isinstance(lost, LostLease)
    await until_fed(dsn)
