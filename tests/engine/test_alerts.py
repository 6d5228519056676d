"""Every alert of deploy/prometheus/alerts.yml, tried: what it warns of happens, and it fires.

Rule: expressions are read from the file and evaluated as Prometheus does. An increase is that of series
that were there before: one that appears with the first failure has none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, LiteralString

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from progressor import Message, Namespace, Process, RetryPolicy, metrics
from progressor.deployment.log_writer import LogWriter
from progressor.errors import StorageUnavailable
from progressor.handlers.running.waits import Lending
from progressor.node.courier import Courier
from progressor.node.loop_lag import LoopLag
from progressor.services.bulk_runner import BulkRunner
from progressor.services.outbox_sweeper import OutboxSweeper
from progressor.services.scanner import Scanner
from progressor.services.subscription_monitor import SubscriptionMonitor
from progressor.services.zombie_collector import ZombieCollector
from progressor.storage.admin.bulks import NewBulk
from progressor.storage.feed.places import FeedPlace
from progressor.storage.group_commit import batch_steps
from progressor.storage.operations import Storage
from progressor.storage.outbox import Outbox
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.values import Claimed
from progressor.supervision import Background
from progressor.worker.pool import Pool
from progressor.worker.result_budget import ResultBudget
from progressor.worker.slot import Slot
from progressor.worker.worker import StepResult, Worker
from tests.deploy.manifests import rules
from tests.engine.clock import PAST, start_at
from tests.engine.writes import AGE, Writes
from tests.support import (
    NO_FOREIGN,
    NS,
    SECOND,
    Held,
    LossyConnections,
    NoConnections,
    Tables,
    eventually,
    fail,
    hold,
    init,
    request,
    resume,
    save,
    set_timer,
    wait,
)

Labels = frozenset[tuple[str, str]]
Scrape = dict[str, dict[Labels, float]]

_EXPRESSION = re.compile(
    r"(?:(?:max|sum)(?: by \([\w, ]+\) )?)?\(?(?:(?P<change>increase|rate)\()?(?P<metric>\w+)"
    r"(?:\{(?P<label>\w+)(?P<is>!?=)\"(?P<value>\w+)\"\})?(?:\[\w+\])?\)*(?: / (?P<unit>\d+))?"
    r"(?: (?P<compared>>|==) (?P<bound>\d*\.?\d+))?"
)
_OF_PROMTOOL = ("a service cannot be scraped", "many processes break", "the API fails", "the API is slow")
_ABSENT = re.compile(r"absent\((?P<metric>\w+)\)")


def scrape() -> Scrape:
    found: Scrape = {}
    for family in text_string_to_metric_families(metrics.exposition()[0].decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def alerts() -> dict[str, str]:
    """All but that of what the scraper itself tells, and those that compare two: promtool tries these."""
    tried = {rule["annotations"]["summary"]: rule["expr"] for rule in rules()}
    return {what: expr for what, expr in tried.items() if what not in _OF_PROMTOOL}


@dataclass
class Alert:
    """One alert; `bound` stands in for its own where that cannot be waited for in a test."""

    expression: str
    bound: float | None = None

    def fires(self, before: Scrape, after: Scrape, *, seconds: float = 1) -> bool:
        if absent := _ABSENT.fullmatch(self.expression):
            return not after.get(absent["metric"])
        parts = _EXPRESSION.fullmatch(self.expression)
        assert parts is not None, self.expression
        bound = float(parts["bound"]) if self.bound is None else self.bound
        values = after.get(parts["metric"], {})
        if parts["label"]:
            named, wanted = (parts["label"], parts["value"]), parts["is"] == "="
            values = {k: value for k, value in values.items() if (named in k) is wanted}
        if parts["unit"]:
            values = {labels: value / float(parts["unit"]) for labels, value in values.items()}
        if parts["change"]:
            earlier = before.get(parts["metric"], {})
            values = {
                labels: value - earlier[labels] for labels, value in values.items() if labels in earlier
            }
        if parts["change"] == "rate":
            values = {labels: value / seconds for labels, value in values.items()}
        found = values.values()
        return any(value > bound for value in found) if parts["compared"] == ">" else bound in found


@dataclass
class World:
    """What the troubles are made of."""

    storage: Storage
    tables: Tables
    dsn: str
    # What is not to go before the scrape.
    kept: list[object] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)

    def namespace(self) -> Namespace:
        namespace = Namespace(NS, retry_policy=RetryPolicy(initial_interval=SECOND))

        @namespace.call(name="go")
        async def go(process: Process) -> None:
            raise KeyError("a defect")

        @namespace.timeout
        async def late(process: Process) -> None:
            raise KeyError("a defect")

        return namespace

    def worker(self) -> Worker:
        nobody: Any = _Nobody()
        no_connections: Any = NoConnections()
        steps, lending = batch_steps(self.storage), Lending((), (), nobody)
        namespace = self.namespace()
        return Worker(
            namespace,
            namespace,
            steps,
            nobody,
            nobody,
            lending=lending,
            budget=ResultBudget(),
            connections=no_connections,
            foreign=NO_FOREIGN,
            groups=self.storage.enter_group,
        )

    async def step(self, held: Claimed) -> None:
        await self.worker().step(held, Slot())

    def pool(self, worker: Any) -> Pool:
        hour = timedelta(hours=1)
        return Pool(
            Namespace(NS), self.storage, worker, worker_id=1, budget=ResultBudget(), poll_interval=hour
        )

    async def call(self) -> Claimed:
        await start_at(self.storage, PAST)
        step = await hold(self.storage, request(args=None, name="go"), now=PAST)
        return Claimed(step.task, step.process)

    def collector(self, writes: Writes) -> ZombieCollector:
        nobody: Any = _Nobody()
        return ZombieCollector(
            self.storage, nobody, writes.witness, interval=SECOND, lease_age=AGE, grace=10 * SECOND
        )

    def scanner(self) -> Scanner:
        return Scanner(self.storage, interval=SECOND, lease_age=15 * SECOND, wake=lambda *_: None)


class _Hangs:
    """A worker whose handlers run on after their steps."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.connections, self.foreign = worker.connections, worker.foreign

    async def step(self, held: Claimed, slot: Slot) -> StepResult:
        slot.hung = held.task, Future()
        return await self._worker.step(held, slot)


class _Nobody:
    """Stands where Replies and Reads would."""

    def look(self, *_: Any) -> None:
        return

    def resolve(self, *_: Any) -> None:
        return


async def backlog(world: World) -> None:
    await wait(world.storage, init(worker_id=None), now=PAST)
    await world.scanner().run_once()


async def broken(world: World) -> None:
    await world.step(await world.call())
    (alive,) = world.tables.execute("SELECT now() AS at")
    world.tables.set_worker(seen_at=alive["at"])
    await world.scanner().run_once()


async def slow_mailbox(world: World) -> None:
    # As a scanner publishes it: a pace is that of many steps.
    hour = timedelta(hours=1)
    metrics.publish_waiting(NS, requests=2000, age=SECOND, deepest=2000, through_in=hour)


async def zombies(world: World) -> None:
    await world.call()
    world.tables.set_worker(seen_at=PAST)
    writes = Writes(world.tables)
    writes.get_through(50)
    await world.collector(writes).run_once()


async def zombie_stays(world: World) -> None:
    with psycopg.connect(world.dsn) as person:
        held = await world.call()
        person.execute("SELECT FROM progressor.tasks WHERE task_id = %s FOR UPDATE", [held.task.task_id])
        world.tables.set_worker(seen_at=PAST)
        writes = Writes(world.tables)
        writes.get_through(50)
        collector = world.collector(writes)
        await collector.run_once()
    # The person has left.
    await collector.run_once()


async def no_collector(world: World) -> None:
    writes = Writes(world.tables)
    writes.get_through(20)
    await world.collector(writes).run_once()


async def lost_leases(world: World) -> None:
    held = await world.call()
    await world.storage.hand_back([held.task])
    await world.step(held)


async def retries(world: World) -> None:
    for number in range(2):
        await start_at(world.storage, PAST, f"p{number}", set_timer(at=PAST + SECOND))
    for step in await world.storage.search("timers", NS, 10, worker_id=1, lease=1):
        await world.step(step)


async def blocked_loop(world: World) -> None:
    lag = LoopLag()
    lag.start()
    await asyncio.sleep(0)
    time.sleep(0.7)  # noqa: ASYNC251 - the point of it


async def hung(world: World) -> None:
    pool = world.pool(_Hangs(world.worker()))
    pool.start()
    world.pools.append(pool)
    held = await world.call()
    await eventually(pool.reserve, "a free slot")
    pool.run(held)
    await eventually(lambda: pool.hung == 1, "it hangs")


async def no_worker(world: World) -> None:
    await start_at(world.storage, None, "p1", set_timer(timedelta(days=30)))
    await world.scanner().run_once()


async def left_paused(world: World) -> None:
    await world.storage.set_paused(NS, True)
    await world.scanner().run_once()


async def no_scanner(world: World) -> None:
    for gauge in (metrics.LIVE_WORKERS, metrics.BACKLOG, metrics.OLDEST_AGE):
        gauge.clear()


async def outage(world: World) -> None:
    connections = LossyConnections(world.dsn, limit=1)
    connections.early = 10_000
    storage = Storage(connections, patience=SECOND / 5)
    world.kept.append(storage)
    with pytest.raises(StorageUnavailable):
        await storage.namespace_names()
    await connections.close()


async def defect(world: World) -> None:
    async def fail() -> None:
        raise KeyError("a defect")

    background = Background()
    background.begin("listener", fail())
    await background.ended()


async def unread_log(world: World) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        os.close(reader)
        handler = LogWriter(stream)
        handler.emit(logging.makeLogRecord({"msg": "nobody reads this"}))
        handler.flush()
        handler.close()


async def ended_child(world: World) -> None:
    metrics.BACKGROUND_FAILURES.labels("child").inc()


async def damage(world: World) -> None:
    with world.tables.damaged("tasks"):
        await wait(world.storage, init(worker_id=None, args=os.urandom(5_000)))
    assert await world.storage.search("calls", NS, 10, worker_id=1, lease=1) == []


async def old_snapshot(world: World) -> None:
    with psycopg.connect(world.dsn) as report:
        report.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        report.execute("SELECT count(*) FROM progressor.events")
        await world.scanner().run_once()


async def still_bulk(world: World) -> None:
    step = await world.call()
    await save(world.storage, Held(step.task, step.process), fail(), now=PAST)
    item = NewBulk(NS, None, None, False, None, b"hash", "key", b"bulk", SECOND)
    await world.storage.make_bulk(item, now=PAST + SECOND)
    # It begins a repair that no worker takes.
    await world.storage.run_bulk(now=PAST + 2 * SECOND)
    node: Any = SimpleNamespace(storage=world.storage)
    await BulkRunner(node, interval=SECOND).run_once()


async def stuck_message(world: World) -> None:
    await send_to(world, "nobody.serves", "p1")
    await sweep(world)


async def refused_message(world: World) -> None:
    await send_to(world, NS, "nobody")
    await sweep(world)


async def send_to(world: World, namespace: str, process_id: str) -> None:
    sent = Message(namespace, process_id, "go", idempotency_key="key", request_hash=b"hash")
    step = await world.call()
    await save(world.storage, Held(step.task, step.process), resume(messages=(sent,)), now=PAST + SECOND)


async def failing_subscription(world: World) -> None:
    await subscribe(world, "UPDATE subscription_slices SET failing_since = now(), error = 'no'")


async def late_subscription(world: World) -> None:
    await subscribe(
        world,
        "INSERT INTO feed (position, appended_at, namespace, kinds, process_nos, process_ids, task_ids, "
        "last_event_ids, event_counts) OVERRIDING SYSTEM VALUE "
        "VALUES (1, now() - interval '1 hour', 'a', 's', '{1}', '{a}', '{1}', '{0}', '{0}'); "
        "UPDATE feed_head SET position = 1; "
        "SELECT setval('processes_process_no_seq', 1), setval('tasks_task_id_seq', 1)",
    )


async def parked_event(world: World) -> None:
    await subscribe(
        world,
        "INSERT INTO parked (name, slice, process_no, namespace, process_id, kind, n, timestamp, position, "
        "attempts) VALUES ('ledger', 0, 1, 'a', 'a', 'e', 1, now(), 'x', 1)",
    )


async def subscribe(world: World, trouble: LiteralString) -> None:
    await world.storage.subscribed("ledger", 1, FeedPlace(0))
    world.tables.execute(trouble)
    node: Any = SimpleNamespace(storage=world.storage)
    await SubscriptionMonitor(node).run_once()


async def sweep(world: World) -> None:
    connections = SessionPool(world.dsn, limit=1)
    outbox = Outbox(connections, patience=SECOND)
    node: Any = SimpleNamespace(outbox=outbox, courier=Courier(outbox, lambda *_: None))
    await OutboxSweeper(node, interval=SECOND).run_once()
    await node.courier.idle()
    await connections.close()


Trouble = Callable[[World], Awaitable[None]]
TROUBLES: dict[str, tuple[Trouble, float | None]] = {
    "work waits too long": (backlog, None),
    "requests wait behind others": (backlog, None),
    "waiting requests will take long": (slow_mailbox, None),
    "a namespace with work has no worker": (no_worker, None),
    "a namespace was left paused": (left_paused, None),
    "no scanner, or no worker at all": (no_scanner, None),
    "processes are broken": (broken, None),
    "workers die": (zombies, None),
    "a zombie cannot be ended": (zombie_stays, None),
    "no zombie collector works": (no_collector, None),
    "results are dropped": (lost_leases, None),
    "timers fail": (retries, None),
    "handlers block the event loop": (blocked_loop, None),
    "sync handlers hang": (hung, None),
    # Half a minute and ten are not waited for.
    "PostgreSQL is unavailable": (outage, 0),
    "stored rows cannot be read": (damage, None),
    "a background task fails": (defect, None),
    "log lines are dropped": (unread_log, None),
    "child processes of a worker end": (ended_child, None),
    "an old snapshot slows everything": (old_snapshot, 0),
    "a bulk makes no progress": (still_bulk, None),
    "messages are not delivered": (stuck_message, None),
    "messages are refused": (refused_message, None),
    "a subscription fails": (failing_subscription, None),
    "a subscription is behind": (late_subscription, None),
    "events are parked": (parked_event, None),
}


def test_every_alert_is_tried() -> None:
    """Each alert of the documentation has a trouble that sets it off."""
    assert set(alerts()) == set(TROUBLES)


@pytest.mark.parametrize("what", TROUBLES)
async def test_it_fires(what: str, storage: Storage, tables: Tables, dsn: str) -> None:
    """What the alert warns of happens: it fires. An increase is none before."""
    trouble, bound = TROUBLES[what]
    alert = Alert(alerts()[what], bound)
    # What a worker shows from its start on.
    world = World(storage, tables, dsn)
    pool = world.pool(world.worker())
    pool.start()
    await pool.stop(SECOND)
    for part in ("listener", "child"):
        Background().keep(part, lambda: asyncio.sleep(0))
    before = scrape()
    if "increase" in alert.expression or "rate" in alert.expression:
        assert not alert.fires(before, before)
    await trouble(world)
    after = scrape()
    for pool in world.pools:
        await pool.stop(SECOND)
    assert alert.fires(before, after)


async def test_all_is_well(storage: Storage, tables: Tables) -> None:
    """A live worker, nothing that waits, no old snapshot: no alert, until the scanner ends."""
    (alive,) = tables.execute("SELECT now() AS at")
    tables.set_worker(seen_at=alive["at"])
    no_scanner_before = {"progressor_live_workers": {}, "progressor_backlog": {}}
    metrics.LIVE_WORKERS.clear()
    metrics.BACKLOG.clear()
    metrics.OLDEST_AGE.clear()
    scanner = Scanner(storage, interval=SECOND, lease_age=15 * SECOND, wake=lambda *_: None)
    await scanner.run_once()
    now, page = scrape(), alerts()
    for what in (
        "work waits too long",
        "a namespace with work has no worker",
        "no scanner, or no worker at all",
        "an old snapshot slows everything",
    ):
        assert not Alert(page[what]).fires(no_scanner_before, now), what
    await scanner.stop()
    assert Alert(page["no scanner, or no worker at all"]).fires(now, scrape())
