"""drop_leftovers and the small statements around workers and namespaces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from progressor.monitoring import Waiting
from progressor.outages import Outage
from progressor.storage.admin.monitoring import Backlog, LiveWorker
from progressor.storage.heartbeats import Beats
from progressor.storage.operations import Storage
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    claim_calls,
    claim_timers,
    collect,
    evidence,
    hold,
    init,
    refuse_init,
    removed,
    request,
    resume,
    save,
    set_timer,
    start,
)

AGE = timedelta(seconds=30)
DAY = timedelta(days=1)


async def drop(storage: Storage, after: timedelta) -> None:
    await storage.drop_workers(evidence(T0 + after), lease_age=AGE)
    await storage.drop_leftovers(now=T0 + after)


async def test_answers_of_removed_processes_end(storage: Storage, tables: Tables) -> None:
    """Answers that a removed process left are dropped after their age, not before."""
    await start(storage)
    await save(storage, await hold(storage, request()), removed())
    await save(storage, await hold(storage, init("refused")), refuse_init())
    await drop(storage, DAY)
    assert [row["task_type"] for row in tables.everything()["tasks"]] == ["init", "call", "init"]
    await drop(storage, DAY + SECOND)
    assert tables.everything()["tasks"] == []


async def test_timers_of_removed_processes_end_sooner(storage: Storage, tables: Tables) -> None:
    """Nobody waits for the answer of a timer that removed its process long after its last request."""
    await start(storage, "expires", set_timer(2 * DAY, remove=True))
    (timer,) = await claim_timers(storage, now=T0 + 2 * DAY)
    await save(storage, timer, removed(), now=T0 + 2 * DAY)
    await drop(storage, 2 * DAY + timedelta(minutes=10))
    assert [row["task_type"] for row in tables.everything()["tasks"]] == ["remove"]
    await drop(storage, 2 * DAY + timedelta(minutes=10) + SECOND)
    assert tables.everything()["tasks"] == tables.everything()["removed"] == []


async def test_many_answers_end_bit_by_bit(storage: Storage, tables: Tables) -> None:
    """However many processes were removed at once, a round forgets a bounded number of them."""
    for place in range(3):
        await start(storage, f"p{place}")
        await save(storage, await hold(storage, request(f"p{place}")), removed())
    late = T0 + DAY + SECOND
    assert await storage.drop_leftovers(limit=2, now=late)
    assert len(tables.everything()["removed"]) == 1
    assert not await storage.drop_leftovers(limit=2, now=late)
    assert tables.everything()["tasks"] == tables.everything()["removed"] == []


async def test_answers_of_living_processes_stay(storage: Storage, tables: Tables) -> None:
    """The history of a living process is never dropped."""
    await start(storage)
    await save(storage, await hold(storage, request()), resume())
    before = tables.everything()
    await drop(storage, 10_000 * DAY)
    assert tables.everything() == before


async def test_dead_workers_are_forgotten(storage: Storage, tables: Tables) -> None:
    """A worker without a sign of life for ten leases is forgotten, once nothing of its runs."""
    tables.set_namespace()
    tables.set_collector()
    tables.set_worker(1)
    tables.set_worker(2)
    tables.set_worker(3, seen_at=T0 + 10 * AGE)
    await hold(storage, init(worker_id=2))
    await drop(storage, 10 * AGE)
    assert len(_workers(tables)) == 3
    await drop(storage, 10 * AGE + SECOND)
    assert _workers(tables) == [2, 3]
    await collect(storage, T0 + 10 * AGE + SECOND, lease_age=AGE, grace=AGE)
    await drop(storage, 10 * AGE + SECOND)
    assert _workers(tables) == [3]


def _workers(tables: Tables) -> list[int]:
    rows = tables.execute("SELECT worker_id FROM workers WHERE namespaces <> '{}' ORDER BY worker_id")
    return [row["worker_id"] for row in rows]


def _beats(dsn: str, worker_id: int, *namespaces: str) -> Beats:
    served = dict.fromkeys(namespaces, SECOND)
    return Beats(dsn, worker_id=worker_id, host="h", namespaces=served, lease_age=AGE)


def test_heartbeat(dsn: str, tables: Tables) -> None:
    """A worker makes its row, renews it, learns the count, and takes it with it."""
    beats = _beats(dsn, 1, NS)
    one = beats.beat({NS: 3}, {NS: 8})
    (first,) = tables.execute("SELECT * FROM workers")
    assert (first["host"], first["namespaces"], first["free_slots"]) == ("h", [NS], {NS: 3})
    assert first["steps"] == {NS: 8}
    assert (first["step_timeouts"], first["lease_age"]) == ([SECOND], AGE)
    two = beats.beat({}, {})
    (second,) = tables.execute("SELECT * FROM workers")
    assert second["step_timeouts"] == [SECOND]
    assert second["seen_at"] > first["seen_at"]
    assert second["started_at"] == first["started_at"]
    assert [(each.number, each.at) for each in (one, two)] == [
        (row["beats"], row["seen_at"]) for row in (first, second)
    ]
    beats.leave()
    beats.close()
    assert tables.execute("SELECT * FROM workers") == []


def test_steps_have_more_time_while_saving_is_refused(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as PostgreSQL refuses other statements of the process, and no longer."""
    beats = _beats(dsn, 1, NS)
    beats.beat({}, {})
    monkeypatch.setattr(Outage, "held_up", 70.0)
    beats.beat({}, {})
    (row,) = tables.execute("SELECT step_timeouts FROM workers")
    assert row["step_timeouts"] == [71 * SECOND]
    monkeypatch.setattr(Outage, "held_up", 0.0)
    beats.beat({}, {})
    beats.close()
    (row,) = tables.execute("SELECT step_timeouts FROM workers")
    assert row["step_timeouts"] == [SECOND]


async def test_live_workers(dsn: str, storage: Storage) -> None:
    """The workers that serve a namespace are listed with their free slots there."""
    for beats, free in ((_beats(dsn, 1, NS, "shop.other"), {NS: 3}), (_beats(dsn, 2, "shop.other"), {})):
        beats.beat(free, {})
        beats.close()
    assert await storage.live_workers(NS, AGE) == [(1, 3)]
    assert {worker.worker_id for worker in await storage.live_workers("shop.other", AGE)} == {1, 2}
    assert await storage.served_namespaces(AGE) == {NS: 1, "shop.other": 2}


async def test_others_that_serve_a_function(dsn: str, storage: Storage, tables: Tables) -> None:
    """Live workers that list it, and raw handlers; not the one that asks."""
    for worker_id, function in (
        *((1, "call pay"), (2, "call refund"), (3, "*"), (4, "call refund")),
        *((6, "timeout"), (7, "timeout item")),
    ):
        beats = Beats(
            dsn,
            worker_id=worker_id,
            host="here",
            namespaces={NS: SECOND},
            lease_age=AGE,
            functions={NS: [function]},
        )
        beats.beat({NS: worker_id}, {})
        beats.close()
    silent = _beats(dsn, 5, NS)
    silent.beat({}, {})
    silent.close()
    tables.execute("UPDATE workers SET seen_at = now() - %s WHERE worker_id = 4", 2 * AGE)

    async def others(function: str, worker_id: int) -> set[LiveWorker]:
        found = await storage.others_serving(NS, function, worker_id=worker_id, lease_age=AGE)
        return set(found)

    assert await others("call refund", 9) == {(2, 2), (3, 3)}
    assert await others("call refund", 2) == {(3, 3)}
    assert await others("init", 3) == set()
    # A function for all timers serves those with names too, and not the other way round.
    assert await others("timeout item", 9) == {(3, 3), (6, 6), (7, 7)}
    assert await others("timeout", 9) == {(3, 3), (6, 6)}
    assert await storage.others_serving("shop.other", "init", worker_id=9, lease_age=AGE) == []


async def test_health_names_what_is_served(dsn: str, storage: Storage, tables: Tables) -> None:
    """A namespace that was served once is not for ever; nor is one whose workers are dead."""
    tables.set_namespace("shop.past")
    tables.set_worker(7, seen_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert await storage.health(AGE) == (0, (), ())
    # A collector apart has a row too, and serves nothing: it is no worker.
    for beats in (_beats(dsn, 1, NS), _beats(dsn, 2)):
        beats.beat({}, {})
        beats.close()
    assert await storage.health(AGE) == (1, (NS,), ())


async def test_registering_keeps_the_pause(storage: Storage, tables: Tables) -> None:
    """A worker that starts says what it serves; an operator's pause stays."""
    tables.set_namespace(paused=True)
    await storage.register_namespace(NS, options={"on_zombie": "retry"}, schemas={"state": {}})
    (row,) = tables.execute("SELECT * FROM namespaces")
    assert (row["paused"], row["options"], row["schemas"]) == (
        True,
        {"on_zombie": "retry"},
        {"state": {}},
    )


async def test_backlog(storage: Storage, tables: Tables) -> None:
    """The scanner learns what can be claimed, since when, and when the next timer is due."""
    await storage.prepare_init([init("a", worker_id=None)], now=T0)
    await storage.prepare_init([init("b", worker_id=None)], now=T0 + SECOND)
    await start(storage, "due", set_timer(SECOND))
    await start(storage, "later", set_timer(9 * SECOND))
    await start(storage, "blocked", set_timer(3 * SECOND))
    await hold(storage, request("blocked"))
    now = T0 + 2 * SECOND
    seen = await storage.backlog(NS, most=100, now=now)
    assert seen == Backlog(Waiting(2, 2 * SECOND), Waiting(1, SECOND), 7 * SECOND)
    bounded = await storage.backlog(NS, most=1, now=now)
    assert bounded.calls == Waiting(1, 2 * SECOND)
    await claim_calls(storage)
    empty = await storage.backlog(NS, most=100, now=T0)
    assert empty == Backlog(Waiting(0, timedelta()), Waiting(0, timedelta()), SECOND)
