"""The slots of a namespace: taken before a task is asked for, and given back whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from progressor import Namespace, Rate, supervision
from progressor.handlers.running.threads import NoThread
from progressor.loggers import message_of
from progressor.storage.operations import Storage
from progressor.storage.values import ROOM, Claimed
from progressor.worker import hand_backs, pool as pool_module
from progressor.worker.pool import MAX_CHAIN, Pool
from progressor.worker.result_budget import NoRoom, ResultBudget
from progressor.worker.slot import Slot
from progressor.worker.worker import StepResult
from tests.engine.clock import PAST, start_at
from tests.support import (
    NO_FOREIGN,
    NS,
    SECOND,
    WORKER,
    NoConnections,
    Tables,
    check_invariants,
    claim_calls,
    eventually,
    init,
    set_timer,
    wait,
)

HOUR = timedelta(hours=1)


class Steps:
    """Stands where Worker would: its steps end as the test says, and save nothing."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.kept: list[bool] = []
        self.gate = asyncio.Event()
        self.then: Callable[[Claimed], Claimed | None] = lambda _: None
        self.lacks: BaseException | None = None
        self.hangs: Future[None] | None = None
        self.due: timedelta | None = None
        self.swallows = 0

    async def step(self, held: Claimed, slot: Slot) -> StepResult:
        self.begun.append(held.task.process_id)
        self.kept.append(slot.goes_on)
        while self.swallows:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.swallows -= 1
        await self.gate.wait()
        following = self.then(held)
        await asyncio.sleep(0)
        if self.lacks is not None:
            lack, self.lacks = self.lacks, None
            raise lack
        if self.hangs is not None:
            slot.hung, slot.goes_on, self.hangs = (held.task, self.hangs), False, None
        return StepResult(following if slot.goes_on else None, self.due)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def budget() -> ResultBudget:
    return ResultBudget()


@pytest.fixture
async def make(
    storage: Storage, steps: Steps, budget: ResultBudget
) -> AsyncIterator[Callable[[int], Pool]]:
    pools: list[Pool] = []

    def make(size: int, **options: Any) -> Pool:
        worker: Any = steps
        worker.connections = NoConnections()
        worker.foreign = NO_FOREIGN
        namespace = Namespace(NS, concurrency=size, **options)
        pool = Pool(namespace, storage, worker, worker_id=WORKER, budget=budget, poll_interval=HOUR)
        pools.append(pool)
        pool.start()
        return pool

    yield make
    steps.gate.set()
    steps.then = lambda _: None
    for pool in pools:
        await pool.stop(SECOND)


async def inits(storage: Storage, count: int) -> None:
    for number in range(count):
        await wait(storage, init(f"p{number}", worker_id=None), now=PAST)


async def test_a_slot_is_reserved_and_released(make: Callable[[int], Pool]) -> None:
    """No more slots can be reserved than there are."""
    pool = make(2)
    await eventually(lambda: pool.is_idle, "nothing waits")
    assert [pool.reserve() for _ in range(3)] == [True, True, False]
    pool.release()
    assert (pool.free, pool.reserve(), pool.free) == (1, True, 0)
    pool.release(2)


async def test_by_a_rate_no_slot_is_reserved_and_each_step_is_claimed(
    make: Callable[..., Pool], storage: Storage, tables: Tables, steps: Steps
) -> None:
    """What the rate does not admit stays where it is, and costs no look while the pool rests."""
    tables.set_namespace(NS)
    steps.gate.set()
    await inits(storage, 3)
    pool = make(4, rate=Rate(1, per=HOUR, burst=2))
    assert not pool.reserve()
    await eventually(lambda: pool.busy == 0 and pool.bells.rests, "it rests")
    assert steps.begun == ["p0", "p1"]
    assert steps.kept == [False, False]
    looks: list[int] = []
    pool._claims.search = lambda *_: looks.append(1)  # type: ignore[method-assign, assignment, return-value]
    pool.ring("calls")
    await eventually(lambda: pool.bells.is_heard, "the ring is heard")
    assert looks == []


async def test_a_share_is_kept_for_what_waits(make: Callable[[int], Pool]) -> None:
    """While others are known to wait, requests of this process leave them an eighth of the slots."""
    pool = make(16)
    await eventually(lambda: pool.is_idle, "nothing waits")
    pool.ring("timers")
    assert [pool.reserve() for _ in range(15)] == [True] * 14 + [False]
    pool.release(14)


async def test_nothing_new_begins_while_results_wait_to_be_saved(
    make: Callable[[int], Pool], storage: Storage, steps: Steps, budget: ResultBudget
) -> None:
    """It takes neither requests nor what waits; when results are saved, whoever's they were, it goes on."""
    pool = make(2)
    await eventually(lambda: pool.is_idle, "nothing waits")
    others = Slot()
    budget.take(others, ROOM)
    assert (pool.reserve(), pool.may_claim) == (False, False)
    await inits(storage, 1)
    pool.ring("calls")
    await eventually(lambda: pool.bells.is_heard, "the ring is heard")
    assert steps.begun == []
    budget.give_back(others)
    await eventually(lambda: steps.begun == ["p0"], "claimed")
    assert (pool.reserve(), pool.may_claim) == (True, False)
    pool.release()


async def test_it_claims_what_waits_at_the_start(
    make: Callable[[int], Pool], storage: Storage, steps: Steps
) -> None:
    """A worker that starts takes what waits, up to its size, and goes on as slots come free."""
    await inits(storage, 10)
    pool = make(3)
    await eventually(lambda: len(steps.begun) == 3, "as many as there are slots")
    assert pool.free == 0
    steps.gate.set()
    await eventually(lambda: len(steps.begun) == 10, "all in the end")
    assert steps.begun == [f"p{number}" for number in range(10)]
    await eventually(lambda: pool.free == 3, "every slot is back")


async def test_a_ring_makes_it_look(make: Callable[[int], Pool], storage: Storage, steps: Steps) -> None:
    """Between its slow polls it looks when it is rung for, at what it was rung for."""
    steps.gate.set()
    pool = make(4)
    await eventually(lambda: pool.is_idle, "idle")
    await start_at(storage, PAST, "timed", set_timer(at=PAST + SECOND))
    await inits(storage, 1)
    pool.ring("timers")
    await eventually(lambda: steps.begun == ["timed"], "the timer")
    pool.ring("calls")
    await eventually(lambda: steps.begun == ["timed", "p0"], "the call")


async def test_a_timer_of_its_own_rings(
    make: Callable[[int], Pool], storage: Storage, steps: Steps
) -> None:
    """A timer that this worker set is looked for when it falls due."""
    steps.gate.set()
    pool = make(4)
    await eventually(lambda: pool.is_idle, "idle")
    steps.due = timedelta(milliseconds=30)
    await start_at(storage, None, "timed", set_timer(steps.due))
    await inits(storage, 1)
    pool.ring("calls")
    await eventually(lambda: steps.begun == ["p0", "timed"], "claimed when due")


async def test_a_step_that_raises_gives_its_slot_back(
    make: Callable[[int], Pool], storage: Storage, steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect in a step costs its task, never the slot; whose task it was is said."""

    def fail(_: Claimed) -> None:
        raise RuntimeError("a defect")

    steps.then = fail
    steps.gate.set()
    await inits(storage, 4)
    pool = make(2)
    await eventually(lambda: len(steps.begun) == 4, "all were begun")
    await eventually(lambda: pool.free == 2, "every slot is back")
    said = [(record.part, record.process_id) for record in caplog.records]
    assert sorted(said) == [("step", f"p{number}") for number in range(4)]


async def test_a_failing_claim_gives_its_slots_back(
    make: Callable[[int], Pool], storage: Storage, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a claim fails, for whatever reason, its slots are free again and the next one works."""
    steps.gate.set()
    await inits(storage, 1)
    claim, failures = storage.search, [1]

    async def search(*args: Any, **kwargs: Any) -> list[Claimed]:
        if failures:
            failures.pop()
            raise KeyError("a defect")
        return await claim(*args, **kwargs)

    monkeypatch.setattr(storage, "search", search)
    pool = make(2)
    await eventually(lambda: not failures, "it failed")
    await eventually(lambda: pool.free == 2, "slots are back")
    pool.ring("calls")
    await eventually(lambda: steps.begun == ["p0"], "it works again")


async def test_a_chain_goes_on_while_nobody_waits(
    make: Callable[[int], Pool], storage: Storage, steps: Steps
) -> None:
    """A chain of continuations keeps its slot as long as it takes nobody's turn."""
    steps.gate.set()
    steps.then = lambda held: held if len(steps.begun) < 3 * MAX_CHAIN else None
    await inits(storage, 1)
    pool = make(2)
    await eventually(lambda: len(steps.begun) == 3 * MAX_CHAIN, "the whole chain")
    assert all(steps.kept)
    await eventually(lambda: pool.free == 2, "the slot is back")


async def test_a_long_chain_gives_way_to_others(
    make: Callable[[int], Pool], storage: Storage, steps: Steps
) -> None:
    """After a bounded number of steps a chain gives its slot back if others wait for one."""
    steps.gate.set()
    steps.then = lambda held: held if held.task.process_id == "p0" else None
    await inits(storage, 2)
    make(1)
    await eventually(lambda: "p1" in steps.begun, "the other one's turn")
    assert steps.begun[:MAX_CHAIN] == ["p0"] * MAX_CHAIN
    assert steps.kept[: MAX_CHAIN - 1] == [True] * (MAX_CHAIN - 1)
    assert False in steps.kept


async def test_stop_lets_steps_finish(
    make: Callable[[int], Pool], storage: Storage, steps: Steps, tables: Tables, dsn: str
) -> None:
    """Stop claims no more, waits for the steps under way, and hands back what they would go on with."""
    await inits(storage, 4)
    pool = make(2)
    await eventually(lambda: len(steps.begun) == 2, "two run")
    steps.then = lambda held: held
    stopping = asyncio.create_task(pool.stop(30 * SECOND))
    await asyncio.sleep(0)
    assert not stopping.done()
    assert not pool.reserve()
    steps.gate.set()
    assert await stopping
    assert len(steps.begun) == 2
    assert tables.execute("SELECT * FROM running") == []
    assert len(await claim_calls(storage)) == 4
    check_invariants(dsn)


async def test_stop_gives_up_in_the_end(
    make: Callable[[int], Pool],
    storage: Storage,
    steps: Steps,
    tables: Tables,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A step that outlives the grace is given up, and stop says whose; the collectors will take it."""
    await inits(storage, 1)
    pool = make(2)
    await eventually(lambda: len(steps.begun) == 1, "it runs")
    assert not await pool.stop(timedelta(milliseconds=10))
    assert len(tables.execute("SELECT * FROM running")) == 1
    (said,) = [record for record in caplog.records if message_of(record).startswith("steps given up")]
    assert (said.namespace, said.steps, said.processes) == (NS, 1, ["p0"])


async def test_stop_gives_up_a_claim_in_the_end(
    make: Callable[[int], Pool],
    storage: Storage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that an outage holds up may have got through; no step is said to be given up, as none runs."""
    begun = asyncio.Event()

    async def held_up(*_args: Any, **_options: Any) -> list[Claimed]:
        begun.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(storage, "search", held_up)
    pool = make(2)
    async with asyncio.timeout(30):
        await begun.wait()
    assert not await pool.stop(timedelta(milliseconds=10))
    (said,) = [record for record in caplog.records if "given up" in message_of(record)]
    assert (
        message_of(said)
        == "claims and requests given up, a zombie collector will take what they may have begun"
    )


async def test_stop_gives_up_what_swallows_its_cancellation(
    make: Callable[[int], Pool], storage: Storage, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that is given up is cancelled until it ends: the stop does."""
    monkeypatch.setattr(supervision, "_PROD", 0.01)
    steps.swallows = 3
    await inits(storage, 1)
    pool = make(2)
    await eventually(lambda: len(steps.begun) == 1, "it runs")
    async with asyncio.timeout(30):
        assert not await pool.stop(timedelta(milliseconds=10))
    assert (steps.swallows, pool.busy) == (0, 0)


async def test_what_a_request_brings_while_stopping_is_handed_back(
    make: Callable[[int], Pool], storage: Storage, steps: Steps, tables: Tables
) -> None:
    """A task that comes into the worker's hands after the stop was called is not begun here."""
    await inits(storage, 1)
    pool = make(2)
    await eventually(lambda: steps.begun == ["p0"] and pool.free == 1, "it runs")
    assert pool.reserve()
    await wait(storage, init("late", worker_id=None))
    (late,) = await claim_calls(storage)
    stopping = asyncio.create_task(pool.stop(30 * SECOND))
    await asyncio.sleep(0)
    pool.run(Claimed(late.task._replace(), late.process))
    await eventually(lambda: tables.running("late") is None, "handed back")
    assert steps.begun == ["p0"]
    steps.gate.set()
    await stopping


async def test_stop_waits_for_a_request_that_may_yet_be_accepted(
    make: Callable[[int], Pool], storage: Storage, steps: Steps, tables: Tables
) -> None:
    """A slot kept for a request on its way is waited for: what comes of it is handed back, not lost."""
    pool = make(2)
    await eventually(lambda: pool.is_idle, "nothing waits")
    assert pool.reserve()
    stopping = asyncio.create_task(pool.stop(30 * SECOND))
    await wait(storage, init("late", worker_id=None))
    (late,) = await claim_calls(storage)
    assert not stopping.done()
    pool.run(Claimed(late.task, late.process))
    assert await stopping
    assert tables.running("late") is None
    assert (steps.begun, pool.free) == ([], 2)


async def test_stop_waits_for_a_request_that_goes_alone(make: Callable[[int], Pool]) -> None:
    """Its flight was refused and gave back the slot in the turn in which it begins alone and takes it."""
    pool = make(1)
    await eventually(lambda: pool.is_idle, "nothing waits")
    assert pool.reserve()
    stopping = asyncio.create_task(pool.stop(20 * SECOND))
    goes_on = asyncio.Event()

    async def alone() -> None:
        pool.take()
        with pool.lending_slot():
            await goes_on.wait()
        pool.release()

    for _ in range(5):
        await asyncio.sleep(0)
    pool.release()
    lone = asyncio.create_task(alone())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stopping.done()
    goes_on.set()
    assert await stopping
    await lone


async def test_stop_waits_for_what_the_last_claim_brings(
    make: Callable[[int], Pool], storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim under way at the stop brings tasks: they are handed back before the stop is over."""
    pool = make(4)
    await eventually(lambda: pool.is_idle, "nothing waits")
    await inits(storage, 2)
    asked, go_on = asyncio.Event(), asyncio.Event()
    search = pool._claims.search

    async def late_search(kind: Any, limit: int, room: int) -> list[Claimed]:
        asked.set()
        await go_on.wait()
        return await search(kind, limit, room)

    monkeypatch.setattr(pool._claims, "search", late_search)
    pool.ring("timers")
    pool.ring("calls")
    await asked.wait()
    stopping = asyncio.create_task(pool.stop(30 * SECOND))
    await asyncio.sleep(0)
    go_on.set()
    assert await stopping
    assert (pool.free, pool.busy) == (4, 0)
    assert tables.execute("SELECT * FROM running") == []


@pytest.mark.parametrize("lack", [NoThread("can't start new thread"), NoRoom()], ids=type)
async def test_what_could_not_begin_goes_back_unharmed(
    lack: BaseException,
    make: Callable[[int], Pool],
    storage: Storage,
    steps: Steps,
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step that could not begin is handed back without an attempt, and claimed again a little later."""
    # Long enough for the looks of a slow machine.
    monkeypatch.setattr(hand_backs, "_PAUSE", 5.0)
    steps.gate.set()
    steps.lacks = lack
    await inits(storage, 1)
    pool = make(2)
    await eventually(lambda: steps.begun == ["p0"] and tables.running("p0") is None, "handed back")
    (task,) = tables.execute("SELECT status, attempts_count FROM tasks")
    assert (task["status"], task["attempts_count"]) == ("waiting", None)
    # But for a claim that is under way.
    await eventually(lambda: pool.free == 1, "its slot rests")
    await eventually(lambda: steps.begun == ["p0", "p0"], "begun again")


async def test_a_hung_handler_keeps_a_slot(
    make: Callable[[int], Pool], storage: Storage, steps: Steps
) -> None:
    """Its slot takes no other step until it returns, and then it does."""
    thread = steps.hangs = Future()
    steps.gate.set()
    await inits(storage, 2)
    pool = make(1)
    await eventually(lambda: pool.hung == 1, "it hangs")
    assert (steps.begun, pool.free, pool.reserve()) == (["p0"], 0, False)
    thread.set_result(None)
    await eventually(lambda: steps.begun == ["p0", "p1"], "its slot is back")
    await eventually(lambda: (pool.free, pool.hung) == (1, 0), "all is free")


async def test_a_slot_is_lent_only_when_none_is_free(
    make: Callable[[int], Pool], storage: Storage, steps: Steps, tables: Tables
) -> None:
    """What a step waits for runs in a slot beyond all others, one step of it; or is left to the claims."""
    pool = make(1)
    await eventually(lambda: pool.is_idle, "idle")
    await inits(storage, 1)
    process_no = tables.process("p0")["process_no"]
    assert not await pool.run_next(process_no)
    assert pool.reserve()
    steps.gate.set()
    steps.then = lambda held: held
    assert await pool.run_next(process_no)
    assert (steps.begun, steps.kept) == (["p0"], [False])
    assert pool.free == 0
    assert not await pool.run_next(process_no)
    pool.release()


async def test_room_for_large_values(
    make: Callable[[int], Pool], storage: Storage, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker takes on no more than it has room for, whatever its slots; the others follow one by one."""
    monkeypatch.setattr(pool_module, "ROOM", 150_000)
    for place in range(5):
        await wait(storage, init(f"p{place}", worker_id=None, args=b"x" * 100_000), now=PAST)
    pool = make(8)
    await eventually(lambda: len(steps.begun) == 2, "as many as have room")
    pool.ring("calls")
    await eventually(lambda: pool.bells.is_heard, "it heard the ring")
    assert (len(steps.begun), pool.free) == (2, 6)
    steps.gate.set()
    await eventually(lambda: len(steps.begun) == 5, "all in the end")
    await eventually(lambda: pool.free == 8, "every slot is back")
