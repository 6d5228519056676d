"""Repeated operations: a connection lost at COMMIT leaves open whether the server committed.

Rule: the second try reports the success of the first, and nothing is there twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import LiteralString

import pytest
from psycopg import errors as pg, sql

from progressor.errors import StorageUnavailable
from progressor.model import Decision, Event, TaskStatus, TaskType
from progressor.storage.group_commit import batch_requests, batch_steps, by_key
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Session
from progressor.storage.values import (
    Continue,
    Duplicate,
    Import,
    LostLease,
    NotPrepared,
    Postpone,
    Reason,
    Removed,
    Request,
    Saved,
    TaskOutcome,
)
from progressor.timers import SetTimer
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    T0,
    WORKER,
    Held,
    LossyConnections,
    Tables,
    break_process,
    cancel,
    claim_calls,
    claim_timers,
    collect,
    events,
    fail,
    fail_timer,
    held,
    hold,
    ids,
    init,
    number,
    prepare,
    refuse,
    refuse_init,
    removed,
    repair,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
    wait,
)


@pytest.fixture
async def connections(dsn: str, storage: Storage) -> AsyncIterator[LossyConnections]:
    lossy = LossyConnections(dsn, limit=2)
    yield lossy
    assert (lossy.early, lossy.late) == (0, 0), "nothing was repeated"
    await lossy.close()


@pytest.fixture
def lossy(connections: LossyConnections) -> Storage:
    """Its next operation is committed, and its answer lost."""
    connections.late = 1
    return Storage(connections, patience=timedelta(seconds=10))


@pytest.mark.parametrize("kind", [TaskType.INIT, TaskType.CALL, TaskType.REPAIR])
@pytest.mark.parametrize("worker_id", [WORKER, None])
async def test_prepare(
    storage: Storage, lossy: Storage, tables: Tables, kind: TaskType, worker_id: str | None
) -> None:
    """The second try finds the task of the first: to run, or waiting."""
    if kind is TaskType.CALL:
        await start(storage, "p1", set_timer(SECOND))
    elif kind is TaskType.REPAIR:
        await break_process(storage)
    before = len(tables.tasks())
    asked = request("p1", kind, worker_id=worker_id, args=b"1", context=b"ctx")
    (result,) = await prepare(lossy, asked)
    assert isinstance(result, Continue if worker_id else Postpone)
    assert len(tables.tasks()) == before + 1
    if isinstance(result, Continue):
        assert (result.task.lease, result.task.args) == (asked.lease, b"1")
        assert result.process.status == (tables.process() or {})["status"]
        await save(storage, held(result), resume(status=None) if kind == "repair" else resume())


async def test_prepare_batch(storage: Storage, lossy: Storage) -> None:
    """Every item of the batch finds its own; refusals stay refusals."""
    await start(storage, "idle")
    await hold(storage, init("busy"))
    await break_process(storage, "broken")
    results = await lossy.prepare_call(
        [request("idle"), request("idle"), request("busy"), request("broken"), request("none")],
        now=T0,
    )
    assert [type(result) for result in results[:3]] == [Continue, Postpone, Postpone]
    assert results[3:] == [
        NotPrepared(Reason.BROKEN, "ValueError: no"),
        NotPrepared(Reason.NOT_FOUND),
    ]


async def test_refused_init_batch(storage: Storage, lossy: Storage) -> None:
    """An id that is taken by another is still refused at the second try; one's own is not."""
    await start(storage, "taken")
    results = await lossy.prepare_init([init("taken"), init("new")], now=T0)
    assert results[0] == NotPrepared(Reason.EXISTS)
    assert isinstance(results[1], Continue)


async def test_prepared_task_is_claimed_meanwhile(
    storage: Storage, lossy: Storage, connections: LossyConnections
) -> None:
    """What another worker took and finished in between is found with its answer."""
    await start(storage)

    async def meanwhile() -> None:
        (step,) = await claim_calls(storage, worker_id=OTHER_WORKER)
        await save(storage, step, resume())

    connections.meanwhile = meanwhile
    (result,) = await lossy.prepare_call([request(worker_id=None)], now=T0)
    assert isinstance(result, Duplicate)
    assert result.answer == TaskOutcome(TaskStatus.FINISHED, b"answer")


@pytest.mark.parametrize("has_ended", [False, True])
async def test_start_that_a_worker_took_meanwhile(storage: Storage, *, has_ended: bool) -> None:
    """The second try knows its own start by the birth of the process; another request does not."""
    asked = init(worker_id=None, key="k")
    await storage.prepare_init([asked], now=T0)
    (step,) = await claim_calls(storage, worker_id=OTHER_WORKER)
    if has_ended:
        await save(storage, step, removed())
    own, others = [
        (await storage.prepare_init([each], now=T0))[0] for each in (asked, asked._replace(lease=number()))
    ]
    assert isinstance(own, Duplicate)
    assert isinstance(others, Duplicate)
    assert own.task == others.task == step.ref
    assert (own.is_own, others.is_own) == (True, False)


async def test_simple_repair(storage: Storage, lossy: Storage, tables: Tables) -> None:
    """The second try finds the finished repair, and leaves alone the timer that runs by now."""
    await break_process(storage, by_timer=True)
    (result,) = await lossy.simple_repair([repair()], now=T0)
    assert isinstance(result, Duplicate)
    assert result.answer == TaskOutcome(TaskStatus.FINISHED)
    assert tables.outline()[-2:] == [("timeout", "waiting"), ("repair", "finished")]


DECISIONS: list[tuple[str, Decision, Saved]] = [
    ("replace now", set_timer(timedelta(0), events=events(2)), Saved(T0)),
    ("replace later", set_timer(SECOND, events=events(2)), Saved(T0, due=T0 + SECOND)),
    ("resume", resume(events=events(2)), Saved(T0)),
    ("cancel", cancel(), Saved(T0)),
    ("refuse", refuse(), Saved(T0)),
    ("break", fail(), Saved(T0)),
    ("remove", removed(events=events(2)), Saved(T0)),
]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [each[1:] for each in DECISIONS],
    ids=[each[0] for each in DECISIONS],
)
async def test_save_result(
    storage: Storage, lossy: Storage, tables: Tables, decision: Decision, expected: Saved
) -> None:
    """The second try reports what the first one saved, continuation and due time included."""
    await start(storage)
    step = await hold(storage, request())
    saved = await save(lossy, step, decision)
    if isinstance(decision.timer, SetTimer) and decision.timer.after == timedelta(0):
        assert saved.continuation is not None
        assert (saved.continuation.lease, saved.continuation.running_time) == (
            step.task.lease + 1,
            T0,
        )
        await save(storage, step.next(saved, decision), resume())
    else:
        assert saved == expected
    process = tables.process()
    assert len(tables.events()) == (0 if process is None else len(decision.events))


async def test_save_result_with_a_call_waiting(storage: Storage, lossy: Storage) -> None:
    """The call that goes on is found with all that it brought."""
    step = await hold(storage, init())
    asked = request(args=b"2", context=b"ctx", name="pay", key="k")
    waiting = await wait(storage, asked)
    saved = await save(lossy, step, set_timer(SECOND))
    task = saved.continuation
    assert task is not None
    assert (task.task_id, task.args, task.context) == (waiting.task_id, b"2", b"ctx")
    assert (task.name, task.idempotency_key, task.scheduled_time) == ("pay", "k", T0)
    assert saved.due is None
    await save(storage, step.next(saved, resume()), resume())


async def test_save_result_that_resumes_a_timer(storage: Storage, lossy: Storage) -> None:
    """The due time of a timer that waits again is reported."""
    await start(storage, "p1", set_timer(SECOND))
    assert await save(lossy, await hold(storage, request()), resume()) == Saved(T0, due=T0 + SECOND)


async def test_save_result_without_a_slot(storage: Storage, lossy: Storage) -> None:
    """A slot that was given back stays given back."""
    saved = await save(lossy, await hold(storage, init()), set_timer(timedelta(0)), keeps_slot=False)
    assert saved == Saved(T0, due=T0)


async def test_save_result_retry(storage: Storage, lossy: Storage, tables: Tables) -> None:
    """One failure counts as one attempt."""
    await start(storage, "p1", set_timer(SECOND))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    saved = await save(lossy, step, retry(SECOND), now=T0 + SECOND)
    assert saved == Saved(T0 + SECOND, due=T0 + 2 * SECOND)
    assert (tables.task(step.task.task_id) or {})["attempts_count"] == 1


async def test_save_result_that_holds_a_timer(storage: Storage, lossy: Storage, tables: Tables) -> None:
    """In the place of a timer that breaks its process another one is held once, and is not due."""
    await start(storage, "p1", set_timer(SECOND))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    saved = await save(lossy, step, fail_timer(step.task), now=T0 + SECOND)
    assert saved == Saved(T0 + SECOND)
    assert tables.outline()[1:] == [("timeout", "error"), ("timeout", "held")]


async def test_save_result_of_a_repair(storage: Storage, lossy: Storage, tables: Tables) -> None:
    """The timer that was held runs once."""
    await break_process(storage, by_timer=True)
    step = await hold(storage, repair())
    saved = await save(lossy, step, resume())
    assert saved.continuation is not None
    assert tables.outline()[-2:] == [("timeout", "running"), ("repair", "finished")]


async def test_save_result_refused_init(storage: Storage, lossy: Storage, tables: Tables) -> None:
    """A refused init is reported as saved, though its process is gone."""
    assert await save(lossy, await hold(storage, init()), refuse_init()) == Saved(T0)
    assert tables.process() is None


async def test_save_result_batch(storage: Storage, lossy: Storage, tables: Tables) -> None:
    """In a repeated batch each step has its own outcome; a lost lease stays lost."""
    names = ["chain", "lost", "failed", "removed"]
    steps = [await hold(storage, init(name)) for name in names]
    await storage.hand_back([steps[1].task])
    decisions = [set_timer(timedelta(0)), resume(), fail(), removed()]
    results = await lossy.save_result(
        [step.step(decision) for step, decision in zip(steps, decisions, strict=True)], now=T0
    )
    assert [type(result) for result in results] == [Saved, LostLease, Saved, Saved]
    assert steps[0].next(results[0], decisions[0]).task.task_type is TaskType.TIMEOUT
    assert tables.outline("lost") == [("init", "waiting")]


REFUSE: LiteralString = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'too slow' USING ERRCODE = 'query_canceled'; END $$;
"""


async def test_a_step_that_is_refused_again_and_again(storage: Storage, tables: Tables) -> None:
    """It holds up itself only: the other steps of its batch are saved, and so are later ones."""
    steps = {name: await hold(storage, init(name)) for name in ("bad", "one", "two", "later")}
    tables.execute(REFUSE)
    tables.execute(
        sql.SQL(
            "CREATE TRIGGER refuse BEFORE DELETE ON running FOR EACH ROW "
            "WHEN (OLD.process_no = {}) EXECUTE FUNCTION refuse()"
        ).format(steps["bad"].task.process_no)
    )
    ends = batch_steps(storage)
    bad, *others = [ends.submit(steps[name].step(resume())) for name in ("bad", "one", "two")]
    assert [type(saved) for saved in await asyncio.gather(*others)] == [Saved, Saved]
    assert isinstance(await ends.submit(steps["later"].step(resume())), Saved)
    assert not bad.done()
    tables.execute("DROP TRIGGER refuse ON running")
    assert isinstance(await bad, Saved)
    await ends.stop()


@pytest.mark.parametrize("verb", ["prepare_init", "prepare_call"])
async def test_a_request_that_is_refused_again_and_again(
    storage: Storage, tables: Tables, verb: str
) -> None:
    """It is told of it when its patience ends; the others of its batch are accepted."""
    await start(storage, "there")
    tables.execute(REFUSE)
    tables.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON tasks FOR EACH ROW "
        "WHEN (NEW.idempotency_key = 'bad') EXECUTE FUNCTION refuse()"
    )
    impatient = Storage(storage._connections, patience=timedelta(seconds=0.1))
    prepare = getattr(impatient, verb)
    requests = batch_requests(verb, prepare, by=by_key, run_again=partial(prepare, tried=True))
    asked = [
        init(key, key=key, worker_id=None) if verb == "prepare_init" else request("there", key=key)
        for key in ("one", "bad", "two")
    ]
    asked = [each._replace(worker_id=None) for each in asked]
    one, bad, two = await asyncio.gather(*map(requests.submit, asked), return_exceptions=True)
    assert [type(one), type(two)] == [Postpone, Postpone]
    assert isinstance(bad, StorageUnavailable)
    await requests.stop()


class RefusingConnections(LossyConnections):
    """After the answer that was lost, PostgreSQL refuses for a while."""

    refusals = 0

    @asynccontextmanager
    async def acquire(self, patience: float | None = None) -> AsyncIterator[Session]:
        if not self.late and self.refusals:
            self.refusals -= 1
            raise pg.QueryCanceled("canceling statement due to statement timeout")
        async with super().acquire() as session:
            yield session


async def test_steps_that_were_saved_and_then_refused(storage: Storage, dsn: str, tables: Tables) -> None:
    """A batch that got through without an answer, and is then refused: each of its steps is found saved."""
    steps = [await hold(storage, init(name)) for name in ("p1", "p2")]
    connections = RefusingConnections(dsn, limit=2)
    connections.late, connections.refusals = 1, 2
    ends = batch_steps(Storage(connections, patience=timedelta(seconds=10)))
    saved = await asyncio.gather(*(ends.submit(s.step(set_timer(SECOND))) for s in steps))
    assert [type(each) for each in saved] == [Saved, Saved]
    assert tables.outline("p1") == tables.outline("p2") == [("init", "finished"), ("timeout", "waiting")]
    await ends.stop()
    await connections.close()


async def test_save_result_and_the_next_step_meanwhile(
    storage: Storage, lossy: Storage, connections: LossyConnections, tables: Tables
) -> None:
    """What others do with the process in between is theirs: the step is saved, once."""
    step = await hold(storage, init())

    async def meanwhile() -> None:
        (timer,) = await claim_timers(storage, now=T0 + SECOND, worker_id=OTHER_WORKER)
        await save(storage, timer, resume(events=events(1)), now=T0 + SECOND)

    connections.meanwhile = meanwhile
    assert await save(lossy, step, set_timer(SECOND, events=events(1))) == Saved(T0)
    assert tables.outline() == [("init", "finished"), ("timeout", "finished")]


async def test_save_result_and_a_new_life_meanwhile(
    storage: Storage, lossy: Storage, connections: LossyConnections, tables: Tables
) -> None:
    """A process that was made anew in between is not removed by the second try."""
    await start(storage)
    step = await hold(storage, request())

    async def meanwhile() -> None:
        await start(storage)

    connections.meanwhile = meanwhile
    assert await save(lossy, step, removed()) == Saved(T0)
    assert tables.process() is not None


async def test_save_result_that_was_not_committed(
    storage: Storage, connections: LossyConnections, tables: Tables
) -> None:
    """A step whose first tries never reached the server is saved by a later one."""
    step = await hold(storage, init())
    connections.early = 3
    storage_ = Storage(connections, patience=timedelta(0))
    assert await save(storage_, step, resume(events=events(2))) == Saved(T0)
    assert len(tables.events()) == 2


@pytest.mark.parametrize("limit", [2, 3, 100])
async def test_claims(storage: Storage, lossy: Storage, limit: int) -> None:
    """The second try returns what the first one took, and takes no more than was asked for."""
    for place in range(3):
        await storage.prepare_init([init(f"p{place}", worker_id=None)], now=T0)
    found = await claim_calls(lossy, limit)
    assert [step.task.process_id for step in found] == ["p0", "p1", "p2"][:limit]
    assert len(await claim_calls(storage)) == max(0, 3 - limit)


async def test_claims_of_timers(storage: Storage, lossy: Storage) -> None:
    """The same for timers."""
    for place in range(3):
        await start(storage, f"p{place}", set_timer(SECOND))
    assert len(await claim_timers(lossy, 2, now=T0 + SECOND)) == 2
    assert len(await claim_timers(storage, 100, now=T0 + SECOND)) == 1


async def test_capture_task(storage: Storage, lossy: Storage) -> None:
    """The second try returns the task that the first one captured."""
    await start(storage)
    ref = await wait(storage, request(worker_id=None))
    found = await lossy.capture_task(ref, worker_id=WORKER, lease=number(), now=T0)
    assert held(found).task.task_id == ref.task_id


async def test_hand_back(
    storage: Storage, lossy: Storage, connections: LossyConnections, tables: Tables
) -> None:
    """A task that another worker took in between is not taken from it by the second try."""
    step = await hold(storage, init())
    taken: list[Held] = []

    async def meanwhile() -> None:
        taken.extend(await claim_calls(storage, worker_id=OTHER_WORKER))

    connections.meanwhile = meanwhile
    await lossy.hand_back([step.task])
    assert ids(taken) == [step.task.task_id]
    assert tables.outline() == [("init", "running")]


async def test_hand_back_knows_no_patience(
    storage: Storage, connections: LossyConnections, tables: Tables
) -> None:
    """A task that nobody will run must not stay running, however long PostgreSQL is away."""
    step = await hold(storage, init())
    connections.early = 3
    await Storage(connections, patience=timedelta(0)).hand_back([step.task])
    assert tables.outline() == [("init", "waiting")]


@pytest.mark.parametrize("policy", ["error", "retry"])
async def test_collect_zombies(storage: Storage, lossy: Storage, tables: Tables, policy: str) -> None:
    """A zombie is buried once, and its attempt counted once.

    The second try finds nothing to report: waiting callers learn of it by their own slow poll.
    """
    tables.set_namespace(on_zombie=policy)
    tables.set_collector()
    step = await hold(storage, init())
    long = timedelta(seconds=30)
    found = await collect(lossy, T0 + 2 * long, lease_age=long, grace=long)
    assert found == []
    row = tables.task(step.task.task_id)
    assert row is not None
    expected = ("waiting", 1) if policy == "retry" else ("error", None)
    assert (row["status"], row["attempts_count"]) == expected


@pytest.mark.parametrize("spared", range(5))
async def test_zombies_one_by_one(
    storage: Storage, tables: Tables, connections: LossyConnections, spared: int
) -> None:
    """Whichever answer is lost of a round that takes them one by one: each is buried once, or left."""
    tables.set_namespace(on_zombie="retry")
    tables.set_collector()
    steps = [await hold(storage, init(f"p{n}")) for n in range(3)]
    taken = tables.execute("SELECT process_no FROM running ORDER BY process_no OFFSET 1 LIMIT 1")
    connections.spared, connections.late = spared, 1
    tables.execute("BEGIN")
    tables.execute("SELECT FROM running WHERE process_no = %s FOR UPDATE", taken[0]["process_no"])
    long = timedelta(seconds=30)
    await collect(Storage(connections, patience=long), T0 + 2 * long, lease_age=long, grace=long)
    tables.execute("COMMIT")
    rows = [tables.task(step.task.task_id) for step in steps]
    assert [row and (row["status"], row["attempts_count"]) for row in rows] == [
        ("waiting", 1),
        ("running", None),
        ("waiting", 1),
    ]


async def test_remove(storage: Storage, lossy: Storage) -> None:
    """The second try says that there was such a process."""
    await start(storage)
    assert await lossy.remove(NS, "p1") == Removed(existed=True, cancelled=())


async def test_put(storage: Storage, lossy: Storage, tables: Tables) -> None:
    """The second try recognises its own import."""
    item = Import(NS, "p1", "put-1", events=(Event(b"1"), Event(b"2")))
    assert await lossy.put(item, now=T0)
    assert len(tables.events()) == 2
    assert not await storage.put(Import(NS, "p1", "put-2"), now=T0)


async def test_put_of_a_taken_id(storage: Storage, lossy: Storage) -> None:
    """The second try does not take another's process for its own import."""
    await start(storage)
    assert not await lossy.put(Import(NS, "p1", "put-1"), now=T0)


async def test_nothing_reached_the_server(
    storage: Storage, connections: LossyConnections, tables: Tables
) -> None:
    """Operations whose first tries never reached the server are done by a later one, once."""
    storage_ = Storage(connections, patience=timedelta(seconds=30))
    asked: list[Request] = [init(), request(), request(worker_id=None)]
    connections.early = 2
    first = await hold(storage_, asked[0])
    connections.early = 2
    await wait(storage_, asked[1])
    connections.early = 1
    saved = await save(storage_, first, resume())
    connections.early = 2
    await storage_.hand_back([first.next(saved, resume()).task])
    connections.early = 2
    assert len(await claim_calls(storage_)) == 1
    assert tables.outline() == [("init", "finished"), ("call", "running")]
