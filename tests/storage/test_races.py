"""Races: two transactions at once on the same rows.

Rule: the one is held open before its commit, the other is seen to wait (or not to), then the first
commits. Nothing is timed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import pytest

from progressor import metrics
from progressor.archive.pages import ImportOutcome
from progressor.model import TaskStatus, TaskType
from progressor.storage.heartbeats import Beats
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.statements import Results, Transaction
from progressor.storage.values import (
    Continue,
    Duplicate,
    Import,
    LostLease,
    NotPrepared,
    Postpone,
    Reason,
    Removed,
    Saved,
    TaskOutcome,
    TaskRef,
)
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    T0,
    WORKER,
    Held,
    Tables,
    break_process,
    claim_calls,
    claim_timers,
    collect,
    events,
    eventually,
    fail,
    held,
    hold,
    ids,
    init,
    removed,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)
from tests.transfers import made

T = TypeVar("T")
LATER = T0 + timedelta(hours=1)


class HeldSession:
    """Behind the session of an operation: ends its transaction when it is let go."""

    def __init__(self, session: Session, gate: HeldOpen) -> None:
        self._session, self._gate = session, gate
        self._is_open = False

    async def transact(self, statements: Transaction, _hints: Hints | None = None) -> Results:
        if self._is_open or "find_process" in statements:
            # Within it, or a look before it, which holds nothing.
            return await self._session.transact(statements)
        async with self.transaction():
            return await self._session.transact(statements)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        async with self._session.transaction():
            self._is_open = True
            yield
            self._gate.at_end.set()
            await self._gate.go.wait()


class HeldOpen(SessionPool):
    """Keeps each transaction open at its end, until it is let go."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, limit=1)
        self.at_end, self.go = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def acquire(self, patience: float | None = None) -> AsyncIterator[Session]:
        async with super().acquire() as session:
            yield cast("Session", HeldSession(session, self))


class Race:
    """Two operations: the first is held open before its commit."""

    def __init__(self, dsn: str, tables: Tables) -> None:
        self._tables = tables
        self._open = HeldOpen(dsn)
        self._first = Storage(self._open, patience=timedelta(seconds=10))
        self._running: asyncio.Task[Any] | None = None

    async def begin(self, act: Callable[[Storage], Coroutine[Any, Any, T]]) -> None:
        """Run the first operation up to its commit."""
        self._running = asyncio.create_task(act(self._first))
        await asyncio.wait_for(self._open.at_end.wait(), 30)

    async def commit(self) -> Any:
        """Let the first operation end; its result."""
        assert self._running is not None
        self._open.go.set()
        return await self._running

    async def roll_back(self) -> None:
        """End the first operation without a commit."""
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait([self._running])

    async def waits(self, act: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run the second operation until it waits for a lock of the first."""
        task = asyncio.create_task(act)
        await eventually(lambda: task.done() or self._tables.waiting(), "nobody waits")
        assert not task.done(), task.result()
        return task

    async def close(self) -> None:
        if self._running is not None and not self._running.done():
            await self.roll_back()
        await self._open.close()


@pytest.fixture
async def race(dsn: str, storage: Storage, tables: Tables) -> AsyncIterator[Race]:
    found = Race(dsn, tables)
    yield found
    await found.close()


async def test_save_waits_for_a_call_and_sees_it(storage: Storage, race: Race) -> None:
    """A step that ends while a call is being accepted goes on with that call."""
    step = await hold(storage, init())
    await race.begin(lambda first: wait(first, request()))
    second = await race.waits(save(storage, step, set_timer(timedelta(0))))
    ref = await race.commit()
    saved = await second
    assert saved.continuation is not None
    assert saved.continuation.task_id == ref.task_id


async def test_call_waits_for_a_save_and_sees_it(storage: Storage, race: Race) -> None:
    """A call that comes while a step ends finds the process idle, and its new state."""
    step = await hold(storage, init())
    await race.begin(lambda first: save(first, step, resume(aux_state=b"new", events=events(2))))
    second = await race.waits(hold(storage, request()))
    await race.commit()
    process = (await second).process
    assert (process.aux_state, process.last_event_id) == (b"new", 2)


async def test_time_goes_on_behind_a_lock(storage: Storage, race: Race) -> None:
    """Who waited for a lock has the time of when it got it: no step begins before the last one ended."""
    await start(storage, "p1")
    step = await hold(storage, init("p2"), now=None)
    await race.begin(lambda first: hold(first, request("p1")))
    # It has begun, and waits for the first of its two processes, while a step of the second one ends.
    second = await race.waits(storage.prepare_call([request("p1"), request("p2")], now=None))
    saved = await save(storage, step, resume(), now=None)
    await race.commit()
    _, call = await second
    began = held(call).task.running_time
    assert began is not None
    assert began >= saved.now


async def test_call_waits_for_a_failure_and_sees_it(storage: Storage, race: Race) -> None:
    """A call that comes while the process breaks is refused, not left to wait for ever."""
    step = await hold(storage, init())
    await race.begin(lambda first: save(first, step, fail()))
    second = await race.waits(storage.prepare_call([request()], now=T0))
    await race.commit()
    assert await second == [NotPrepared(Reason.BROKEN, "ValueError: no")]


@pytest.mark.parametrize("act", ["step", "verb"])
async def test_call_waits_for_a_removal_and_sees_it(storage: Storage, race: Race, act: str) -> None:
    """A call that comes while the process is removed is refused."""
    await start(storage)
    if act == "step":
        step = await hold(storage, request())
        await race.begin(lambda first: save(first, step, removed()))
    else:
        await race.begin(lambda first: first.remove(NS, "p1"))
    second = await race.waits(storage.prepare_call([request()], now=T0))
    await race.commit()
    assert await second == [NotPrepared(Reason.NOT_FOUND)]


async def test_two_calls_at_once(storage: Storage, race: Race, tables: Tables) -> None:
    """Of two calls on an idle process one runs; the order of acceptance is that of the locks."""
    await start(storage, "p1", set_timer(SECOND))
    await race.begin(lambda first: hold(first, request()))
    second = await race.waits(wait(storage, request()))
    step = await race.commit()
    assert (await second).task_id > step.task.task_id
    assert tables.outline()[1:] == [
        ("timeout", "blocked"),
        ("call", "running"),
        ("call", "waiting"),
    ]


async def test_two_calls_with_one_key(storage: Storage, race: Race) -> None:
    """Of two requests with one key the second attaches to the first."""
    await start(storage)
    await race.begin(lambda first: hold(first, request(key="k")))
    second = await race.waits(storage.prepare_call([request(key="k")], now=T0))
    step = await race.commit()
    (result,) = await second
    assert isinstance(result, Duplicate)
    assert (result.task.task_id, result.answer) == (step.task.task_id, TaskOutcome(TaskStatus.RUNNING))


async def test_call_that_is_rolled_back(storage: Storage, race: Race, tables: Tables) -> None:
    """A request that was never committed leaves nothing behind: the next one runs."""
    await start(storage)
    await race.begin(lambda first: hold(first, request(key="k")))
    second = await race.waits(hold(storage, request(key="k")))
    await race.roll_back()
    await second
    assert tables.outline()[1:] == [("call", "running")]


@pytest.mark.parametrize("same_key", [True, False])
async def test_two_starts_of_one_id(storage: Storage, race: Race, *, same_key: bool) -> None:
    """Of two starts one makes the process; the other is its duplicate, or refused."""
    await race.begin(lambda first: hold(first, init(key="k")))
    second = await race.waits(storage.prepare_init([init(key="k" if same_key else "k2")], now=T0))
    step = await race.commit()
    (result,) = await second
    if same_key:
        assert isinstance(result, Duplicate)
        assert result.task.task_id == step.task.task_id
    else:
        assert result == NotPrepared(Reason.EXISTS)


async def test_start_that_is_rolled_back(storage: Storage, race: Race, tables: Tables) -> None:
    """A start that was never committed leaves the id to the next."""
    await race.begin(lambda first: hold(first, init()))
    second = await race.waits(hold(storage, init()))
    await race.roll_back()
    await second
    assert tables.outline() == [("init", "running")]


async def test_start_waits_for_a_removal(storage: Storage, race: Race, tables: Tables) -> None:
    """A start that comes while the process is removed begins a new life."""
    await start(storage)
    step = await hold(storage, request())
    await race.begin(lambda first: save(first, step, removed()))
    second = await race.waits(hold(storage, init()))
    await race.commit()
    await second
    assert tables.outline() == [("init", "finished"), ("call", "finished"), ("init", "running")]


async def test_start_with_a_key_that_a_removal_sets_free(storage: Storage, race: Race) -> None:
    """A start with the key of a life that somebody is removing waits for that, and begins a new one."""
    await start(storage, "p1", key="k")
    await race.begin(lambda first: first.remove(NS, "p1"))
    second = await race.waits(storage.prepare_init([init(key="k")], now=T0))
    await race.commit()
    (result,) = await second
    assert isinstance(result, Continue)


async def test_start_with_a_key_whose_life_ends_meanwhile(storage: Storage, race: Race) -> None:
    """A start waits for the end of the life that its key began, and is answered by it: no second life."""
    first = init(key="k")
    step = await hold(storage, first)
    await race.begin(lambda storage: save(storage, step, removed()))
    second = await race.waits(storage.prepare_init([init(key="k")], now=T0))
    await race.commit()
    (result,) = await second
    assert isinstance(result, Duplicate)
    assert result.task == step.ref


async def test_two_removals_at_once(storage: Storage, race: Race) -> None:
    """Only one of them has removed the process; the other one finds that it is gone."""
    await start(storage)
    await race.begin(lambda first: first.remove(NS, "p1"))
    second = await race.waits(storage.remove(NS, "p1"))
    assert (await race.commit()).existed
    assert await second == Removed(False, ())


async def test_removal_of_what_ends_meanwhile(storage: Storage, race: Race, tables: Tables) -> None:
    """A process that ended by a step of its own, just before, is gone: what that step kept stays."""
    step = await hold(storage, init(key="k"))
    await race.begin(lambda first: save(first, step, removed()))
    second = await race.waits(storage.remove(NS, "p1"))
    await race.commit()
    assert await second == Removed(False, ())
    assert tables.outline() == [("init", "finished")]
    assert await storage.replies([step.ref.key]) == [TaskOutcome(TaskStatus.FINISHED, b"answer")]


async def test_imports_wait_in_one_direction(storage: Storage, race: Race, tables: Tables) -> None:
    """What waits for one of its names holds none of those behind it, in whatever order they were given."""
    await race.begin(lambda first: first.put(Import(NS, "a", "put-1"), now=T0))
    wholes = [made(name, namespace=NS, due=LATER) for name in "ba"]
    second = await race.waits(storage.import_processes(wholes, now=T0))
    third = asyncio.create_task(storage.put(Import(NS, "b", "put-2"), now=T0))
    await eventually(lambda: third.done() or len(tables.waiting()) > 1, "it neither ends nor waits")
    assert third.done(), "it waits for the second, which waits for the first"
    assert await race.commit()
    assert await second == [ImportOutcome.TAKEN] * 2


async def test_start_waits_for_a_put(storage: Storage, race: Race) -> None:
    """An id that is being imported is taken."""
    await race.begin(lambda first: first.put(Import(NS, "p1", "put-1"), now=T0))
    second = await race.waits(storage.prepare_init([init()], now=T0))
    assert await race.commit()
    assert await second == [NotPrepared(Reason.EXISTS)]


async def test_put_waits_for_a_start(storage: Storage, race: Race) -> None:
    """An import of an id that is being started is refused."""
    await race.begin(lambda first: hold(first, init()))
    second = await race.waits(storage.put(Import(NS, "p1", "put-1"), now=T0))
    await race.commit()
    assert not await second


async def test_two_repairs_at_once(storage: Storage, race: Race) -> None:
    """Of two repairs of one process the second is refused."""
    await break_process(storage)
    await race.begin(lambda first: hold(first, repair()))
    second = await race.waits(storage.simple_repair([repair()], now=T0))
    await race.commit()
    assert await second == [NotPrepared(Reason.IN_REPAIR)]


async def test_two_claims_at_once(storage: Storage, race: Race) -> None:
    """A second claim does not wait, and takes what the first one left."""
    for place in range(5):
        await storage.prepare_init([init(f"p{place}", worker_id=None)], now=T0 + place * SECOND)
    await race.begin(lambda first: claim_calls(first, 3))
    second = await claim_calls(storage, 3, worker_id=OTHER_WORKER)
    first = await race.commit()
    assert [step.task.process_id for step in first] == ["p0", "p1", "p2"]
    assert [step.task.process_id for step in second] == ["p3", "p4"]


async def test_two_claims_of_timers_at_once(storage: Storage, race: Race) -> None:
    """The same for timers."""
    for place in range(3):
        await start(storage, f"p{place}", set_timer(SECOND))
    await race.begin(lambda first: claim_timers(first, 2, now=LATER))
    assert len(await claim_timers(storage, now=LATER)) == 1
    assert len(await race.commit()) == 2


async def test_claim_and_capture_at_once(storage: Storage, race: Race) -> None:
    """A task that is being claimed is not captured, and nobody waits."""
    await start(storage)
    ref = await wait(storage, request(worker_id=None))
    await race.begin(claim_calls)
    assert await storage.capture_task(ref, worker_id=OTHER_WORKER, lease=1, now=T0) is None
    assert ids(await race.commit()) == [ref.task_id]


async def test_claim_skips_a_locked_process(storage: Storage, race: Race) -> None:
    """A claim does not wait for a process that someone is changing, and takes others."""
    await start(storage, "locked", set_timer(SECOND))
    await start(storage, "free", set_timer(2 * SECOND))
    await race.begin(lambda first: wait(first, request("locked", worker_id=None)))
    found = await claim_timers(storage, now=LATER)
    assert [step.task.process_id for step in found] == ["free"]
    await race.commit()
    assert await claim_timers(storage, now=LATER) == []
    assert [step.task.process_id for step in await claim_calls(storage)] == ["locked"]


async def test_call_waits_for_a_claim_of_the_timer(storage: Storage, race: Race, tables: Tables) -> None:
    """A call that comes while the timer is being claimed waits behind it."""
    await start(storage, "p1", set_timer(SECOND))
    await race.begin(lambda first: claim_timers(first, now=LATER))
    second = await race.waits(wait(storage, request()))
    await race.commit()
    await second
    assert tables.outline()[1:] == [("timeout", "running"), ("call", "waiting")]


async def test_collector_skips_a_step_that_is_being_saved(
    storage: Storage, race: Race, tables: Tables
) -> None:
    """A worker that saves in the last moment has saved."""
    tables.set_namespace()
    tables.set_collector()
    step = await hold(storage, init())
    await race.begin(lambda first: save(first, step, resume()))
    for _ in range(2):
        assert await collect(storage, LATER) == []
        await race.commit()


@pytest.mark.parametrize("policy", ["error", "retry"])
async def test_save_waits_for_the_collector(
    storage: Storage, race: Race, tables: Tables, policy: str
) -> None:
    """A worker that saves a moment too late has lost its lease."""
    tables.set_namespace(on_zombie=policy)
    tables.set_collector()
    step = await hold(storage, init())
    await race.begin(lambda first: collect(first, LATER))
    second = await race.waits(storage.save_result([step.step(resume(events=events(1)))], now=T0))
    assert len(await race.commit()) == 1
    assert await second == [LostLease()]


async def test_a_heartbeat_waits_for_the_verdict(
    dsn: str, storage: Storage, race: Race, tables: Tables
) -> None:
    """A worker that comes back to life while it is judged learns of it before it is seen again."""
    tables.set_namespace()
    tables.set_collector()
    tables.set_worker()
    step = await hold(storage, init())
    await race.begin(lambda first: collect(first, LATER))
    beats = Beats(dsn, worker_id=WORKER, host="h", namespaces={NS: SECOND}, lease_age=SECOND)
    beating = await race.waits(asyncio.to_thread(beats.beat, {}, {}))
    assert len(await race.commit()) == 1
    assert (await beating).number == 2
    beats.close()
    assert await storage.save_result([step.step(resume())], now=T0) == [LostLease()]


async def test_two_collectors_at_once(storage: Storage, race: Race, tables: Tables) -> None:
    """A second collector buries what the first one left, and nothing twice."""
    tables.set_namespace(on_zombie="retry")
    tables.set_collector()
    for place in range(4):
        await hold(storage, init(f"p{place}"))
    await race.begin(lambda first: collect(first, LATER, limit=3))
    second = await collect(storage, LATER)
    assert len(second) == 1
    assert len(await race.commit()) == 3
    rows = tables.execute("SELECT attempts_count FROM tasks")
    assert [row["attempts_count"] for row in rows] == [1, 1, 1, 1]


async def test_save_waits_for_hand_back(storage: Storage, race: Race) -> None:
    """A step whose task is being handed back is lost."""
    step = await hold(storage, init())
    await race.begin(lambda first: first.hand_back([step.task]))
    second = await race.waits(storage.save_result([step.step(resume())], now=T0))
    await race.commit()
    assert await second == [LostLease()]


async def test_save_waits_for_a_removal(storage: Storage, race: Race) -> None:
    """A step whose process is being removed is lost."""
    step = await hold(storage, init())
    await race.begin(lambda first: first.remove(NS, "p1"))
    second = await race.waits(storage.save_result([step.step(fail())], now=T0))
    await race.commit()
    assert await second == [LostLease(removed=True)]


# Many at once.


@pytest.fixture
def undisturbed() -> Iterator[None]:
    """No operation was repeated: there was no deadlock."""
    before = metrics.STORAGE_REPETITIONS._value.get()
    yield
    assert metrics.STORAGE_REPETITIONS._value.get() == before


@pytest.mark.usefixtures("undisturbed")
async def test_claims_of_many_workers(storage: Storage) -> None:
    """Eight workers claim at once: every task goes to one of them."""
    names = [f"p{place}" for place in range(200)]
    await storage.prepare_init([init(name, worker_id=None) for name in names], now=T0)
    found: list[Held] = []
    while len(found) < len(names):
        claims = await asyncio.gather(*(claim_calls(storage, 7, worker_id=place) for place in range(8)))
        found += [step for claim in claims for step in claim]
    assert sorted(step.task.process_id for step in found) == sorted(names)


@pytest.mark.usefixtures("undisturbed")
async def test_batches_in_any_order(storage: Storage, tables: Tables) -> None:
    """Batches over the same processes, each in an order of its own, never deadlock."""
    names = [f"p{place}" for place in range(20)]
    rng = random.Random(20)

    def shuffled() -> list[str]:
        return rng.sample(names, len(names))

    starts = await asyncio.gather(
        *(storage.prepare_init([init(name) for name in shuffled()], now=T0) for _ in range(8))
    )
    steps = {
        result.task.process_id: held(result)
        for results in starts
        for result in results
        if isinstance(result, Continue)
    }
    assert len(steps) == len(names)

    async def save_all(order: list[str]) -> list[Saved | LostLease]:
        return await storage.save_result([steps[name].step(resume()) for name in order], now=T0)

    async def call_all(order: list[str]) -> list[Any]:
        return await storage.prepare_call([request(name) for name in order], now=T0)

    orders = [shuffled() for _ in range(12)]
    acts = [save_all if place % 3 == 0 else call_all for place in range(12)]
    results = await asyncio.gather(
        *(act(order) for act, order in zip(acts, orders, strict=True)),
        claim_calls(storage),
        collect(storage, T0, lease_age=timedelta(hours=1), grace=timedelta(hours=1)),
    )
    outcomes = [type(each) for batch in results[:12] for each in batch]
    assert outcomes.count(Saved) == len(names)
    assert outcomes.count(LostLease) == 3 * len(names)
    assert outcomes.count(Continue) + outcomes.count(Postpone) == 8 * len(names)
    (row,) = tables.execute("SELECT count(*) AS n FROM tasks WHERE task_type = 'call'")
    assert row["n"] == 8 * len(names)


@pytest.mark.usefixtures("undisturbed")
async def test_starts_and_removals_in_any_order(storage: Storage, tables: Tables) -> None:
    """Starts, refusals, imports and removals of the same ids at once leave whole processes only."""
    names = [f"p{place}" for place in range(10)]
    rng = random.Random(10)

    async def one(turn: int) -> None:
        order = rng.sample(names, len(names))
        match turn % 4:
            case 0 | 1:
                results = await storage.prepare_init([init(name) for name in order], now=T0)
                steps = [held(each) for each in results if isinstance(each, Continue)]
                decision = removed() if turn % 8 == 1 else set_timer(SECOND, events=events(1))
                await storage.save_result([step.step(decision) for step in steps], now=T0)
            case 2:
                await storage.remove(NS, order[0])
            case _:
                await storage.put(Import(NS, order[0], f"put-{turn}", events=events(2)), now=T0)

    await asyncio.gather(*(one(turn) for turn in range(40)))
    # The last of them may have removed any of the processes. Whatever was left takes each back.
    for name in names:
        await storage.put(Import(NS, name, f"again-{name}", events=events(2)), now=T0)
    rows = tables.execute("SELECT status FROM processes")
    assert [row["status"] for row in rows] == ["running"] * len(names)
    assert TaskType.INIT in {row["task_type"] for row in tables.everything()["tasks"]}


async def _one_search(session: Session, verb: str) -> None:
    where = {"namespace": NS, "limit": 5, "worker_id": OTHER_WORKER, "lease": 1, "now": None}
    await session.transact({verb: where})


async def _capture(session: Session, ref: TaskRef) -> None:
    what = {"namespace": ref.namespace, "process_no": ref.process_no, "task_id": ref.task_id}
    mine = {"worker_id": OTHER_WORKER, "lease": 1, "now": None}
    await session.transact({"capture_task": {**what, **mine}})


@pytest.mark.parametrize("verb", ["search_calls", "search_timers", "capture_task"])
async def test_a_claim_is_dated_behind_the_step_that_it_waited_for(
    storage: Storage, dsn: str, tables: Tables, verb: str
) -> None:
    """A step that ends after a claim's transaction began, but before it looked, ends before the claimed."""
    past = datetime(2020, 1, 1, tzinfo=UTC)
    await save(storage, await hold(storage, init(), now=past), resume(), now=past)
    first = await hold(storage, request(), now=past)
    timer = verb == "search_timers"
    ref = None if timer else await wait(storage, request(worker_id=None), now=past)
    connections = SessionPool(dsn, limit=1)
    try:
        async with connections.acquire() as session, session.transaction():
            decision = set_timer(at=past) if timer else resume()
            (saved,) = await storage.save_result([first.step(decision, keeps_slot=False)])
            assert isinstance(saved, Saved)
            if verb == "capture_task" and ref is not None:
                await _capture(session, ref)
            else:
                await _one_search(session, verb)
    finally:
        await connections.close()
    (ended,) = tables.execute("SELECT max(finished_time) AS at FROM tasks WHERE status = 'finished'")
    (begun,) = tables.execute("SELECT running_time AS at FROM running")
    assert begun["at"] >= ended["at"]
