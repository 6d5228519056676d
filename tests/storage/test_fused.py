"""fused_init, fused_call: what one transaction leaves is what two would have left, or it leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from progressor.model import Decision, Event, TaskStatus, TaskType
from progressor.storage.operations import Storage
from progressor.storage.postgres.transactions import Doubtful
from progressor.storage.values import (
    Claimed,
    Continue,
    Duplicate,
    Finished,
    NotPrepared,
    Postpone,
    Reason,
    Request,
    TaskOutcome,
)
from progressor.timers import SetTimer
from tests.support import (
    SECOND,
    T0,
    LossyConnections,
    Tables,
    break_process,
    cancel,
    check_invariants,
    fail,
    fuse,
    held,
    hold,
    init,
    left,
    prepare,
    refuse,
    refuse_init,
    removed,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

NOW = T0 + 60 * SECOND
Decide = Callable[[Claimed], Decision | None]


class Handlers:
    """Stand where handlers would: each decides at once, or goes on."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self.seen: list[Claimed] = []

    async def run(self, claimed: Sequence[Claimed]) -> list[Decision | None]:
        self.seen += claimed
        return [self._decide(each) for each in claimed]


async def fuse_one(storage: Storage, asked: Request, decision: Decision | None) -> Any:
    (outcome,) = await fuse(storage, [asked], Handlers(lambda _: decision).run, now=NOW)
    return outcome


# What is left is what two transactions leave.

DECISIONS = {
    "resume": resume(),
    "resume with all": resume(
        aux_state=b"new", metadata={"plan": "pro"}, events=(Event(b"1", {"name": "paid"}), Event(b"2"))
    ),
    "replace": set_timer(SECOND, events=(Event(b"1"),)),
    "replace at": set_timer(at=NOW + 5 * SECOND),
    "replace by a removal": set_timer(SECOND, remove=True),
    "replace by one that is due": set_timer(timedelta(0)),
    "cancel": cancel(aux_state=b"new"),
    "reject": refuse(left=3),
    "break": fail(),
    "remove": removed(),
}
TIMERS: dict[str, SetTimer | None] = {
    "no timer": None,
    "a later timer": SetTimer(at=NOW + 60 * SECOND),
    "a removal": SetTimer(at=NOW + 60 * SECOND, remove=True),
}


async def in_two(storage: Storage, asked: Request, decision: Decision) -> TaskOutcome | None:
    (begun,) = await prepare(storage, asked, now=NOW)
    await save(storage, held(begun), decision, now=NOW)
    return TaskOutcome.of(decision.reply)


@pytest.mark.parametrize("decision", list(DECISIONS))
@pytest.mark.parametrize("timer", list(TIMERS))
async def test_a_call_leaves_what_two_transactions_leave(
    storage: Storage, tables: Tables, dsn: str, decision: str, timer: str
) -> None:
    """Whatever it does, on a process with any timer: every row is the same, but for numbers and keys."""
    chosen = TIMERS[timer]
    for process_id in ("p1", "p2"):
        await start(storage, process_id, *([] if chosen is None else [set_timer_of(chosen)]))
    answer = await in_two(storage, request("p1", expires=SECOND), DECISIONS[decision])
    outcome = await fuse_one(storage, request("p2", expires=SECOND), DECISIONS[decision])
    if isinstance(outcome, Continue):
        # It ends more than its own task, or goes on at once: committed as running, and saved by itself.
        assert decision in ("break", "remove", "replace by one that is due")
        await save(storage, held(outcome), DECISIONS[decision], now=NOW)
    else:
        assert isinstance(outcome, Finished)
        assert outcome.answer == answer
    assert left(tables, "p2") == left(tables, "p1")
    check_invariants(dsn)


@pytest.mark.parametrize("ends", [True, False])
async def test_who_is_to_be_told(storage: Storage, tables: Tables, ends: bool) -> None:
    """Nobody of what is answered with its commit; the caller of what goes on."""
    await start(storage)
    outcome = await fuse_one(storage, request(reply_to=61), resume() if ends else None)
    task = outcome.task
    (found,) = tables.execute("SELECT reply_to FROM tasks WHERE task_id = %s", task.task_id)
    assert found["reply_to"] == (None if ends else 61)
    assert task.reply_to == 61


def set_timer_of(timer: SetTimer) -> Decision:
    return set_timer(at=timer.at, remove=timer.remove)


@pytest.mark.parametrize("decision", [each for each in DECISIONS if each != "reject"])
async def test_a_start_leaves_what_two_transactions_leave(
    storage: Storage, tables: Tables, dsn: str, decision: str
) -> None:
    """The same of an init, with its metadata."""
    metadata = {"tenant": 7}
    await in_two(storage, init("p1", process_metadata=metadata), DECISIONS[decision])
    outcome = await fuse_one(storage, init("p2", process_metadata=metadata), DECISIONS[decision])
    if isinstance(outcome, Continue):
        await save(storage, held(outcome), DECISIONS[decision], now=NOW)
    assert left(tables, "p2") == left(tables, "p1")
    check_invariants(dsn)


async def test_a_rejected_start_leaves_no_process(storage: Storage, tables: Tables) -> None:
    """It is committed as running, and removed by its own result, as any other."""
    outcome = await fuse_one(storage, init("p1"), refuse_init())
    assert isinstance(outcome, Continue)
    await save(storage, held(outcome), refuse_init(), now=NOW)
    assert tables.process() is None


async def test_a_timer_that_is_overdue_is_left_to_the_claims(storage: Storage, tables: Tables) -> None:
    """It was not blocked: it stays as it was, and can be claimed at once."""
    await start(storage, "p1", set_timer(at=T0 + SECOND))
    outcome = await fuse_one(storage, request("p1"), resume())
    assert isinstance(outcome, Finished)
    (timer,) = tables.schedule()
    assert (timer["claimable"], timer["scheduled_time"]) == (True, T0 + SECOND)


@pytest.mark.parametrize("kind", [TaskType.INIT, TaskType.CALL])
async def test_a_handler_that_goes_on(storage: Storage, tables: Tables, dsn: str, kind: TaskType) -> None:
    """Its task is committed as running in its worker's hands, the timer blocked behind it."""
    if kind is TaskType.CALL:
        await start(storage, "p1", set_timer(at=NOW + SECOND))
    asked = request("p1", kind)
    outcome = await fuse_one(storage, asked, None)
    assert isinstance(outcome, Continue)
    running = tables.running()
    assert running is not None
    assert (running["task_id"], running["lease"]) == (outcome.task.task_id, asked.lease)
    assert [each["claimable"] for each in tables.schedule()] == [False] * (kind is TaskType.CALL)
    check_invariants(dsn)
    await save(storage, held(outcome), resume(), now=NOW)
    assert [each["claimable"] for each in tables.schedule()] == [True] * (kind is TaskType.CALL)


async def test_what_the_handler_sees(storage: Storage) -> None:
    """The process as it is behind the lock, its timer, and the task that will be written."""
    await start(storage, "p1", set_timer(at=NOW + SECOND, aux_state=b"state", events=(Event(b"1"),)))
    handlers = Handlers(lambda _: resume())
    asked = request("p1", name="pay", context=b"who")
    (outcome,) = await fuse(storage, [asked], handlers.run, now=NOW)
    ((task, process),) = handlers.seen
    assert (process.aux_state, process.last_event_id, process.status) == (b"state", 1, "running")
    (timer,) = process.timers
    assert (timer.due, timer.status) == (NOW + SECOND, "blocked")
    assert (task.name, task.args, task.context, task.running_time) == ("pay", b"args", b"who", NOW)
    assert isinstance(outcome, Finished)
    assert outcome.task.task_id == task.task_id


# No handler begins for what is not to be run now, and nothing is written.


async def duplicate(storage: Storage) -> Request:
    await start(storage)
    await fuse_one(storage, request(key="same"), resume())
    return request(key="same")


async def of_an_earlier_life(storage: Storage) -> Request:
    await start(storage)
    await save(storage, await hold(storage, request(key="same")), removed())
    await start(storage)
    return request(key="same")


async def start_of_an_earlier_life(storage: Storage) -> Request:
    await save(storage, await hold(storage, init(key="same")), removed())
    return init(key="same")


async def busy(storage: Storage) -> Request:
    await start(storage)
    await hold(storage, request())
    return request()


async def behind_others(storage: Storage) -> Request:
    await start(storage)
    await wait(storage, request(worker_id=None))
    return request()


async def initial(storage: Storage) -> Request:
    await hold(storage, init())
    return request()


async def broken(storage: Storage) -> Request:
    await break_process(storage)
    return request()


async def missing(storage: Storage) -> Request:
    return request()


async def there(storage: Storage) -> Request:
    await start(storage)
    return init()


async def unserved(storage: Storage) -> Request:
    return init(namespace="nobody")


@pytest.mark.parametrize(
    "setting",
    [
        duplicate,
        of_an_earlier_life,
        start_of_an_earlier_life,
        busy,
        behind_others,
        initial,
        broken,
        missing,
        there,
        unserved,
    ],
    ids=lambda setting: setting.__name__,
)
async def test_what_is_not_run(storage: Storage, tables: Tables, setting: Any) -> None:
    """It is left to be prepared: no handler begins, and every row is as it was."""
    asked = await setting(storage)
    before, handlers = tables.everything(), Handlers(lambda _: resume())
    assert await fuse(storage, [asked], handlers.run, now=NOW) == [None]
    assert (handlers.seen, tables.everything()) == ([], before)


@pytest.mark.parametrize("kind", [TaskType.INIT, TaskType.CALL])
async def test_a_paused_namespace_runs_nothing(storage: Storage, tables: Tables, kind: TaskType) -> None:
    """Its requests are accepted the ordinary way, and wait."""
    if kind is TaskType.CALL:
        await start(storage)
    tables.execute("UPDATE namespaces SET paused = TRUE")
    asked = request("p1", kind)
    assert await fuse_one(storage, asked, resume()) is None
    assert isinstance((await prepare(storage, asked))[0], Postpone)


async def test_each_of_a_batch_for_itself(storage: Storage, tables: Tables, dsn: str) -> None:
    """One ends, one goes on, one must wait, one does not exist: each has what is its own."""
    for process_id in ("ends", "goes on", "waits"):
        await start(storage, process_id)
    await hold(storage, request("waits"))
    asked = [request(each) for each in ("ends", "missing", "goes on", "waits")]
    handlers = Handlers(
        lambda each: resume(events=(Event(b"1"),)) if each.process.process_id == "ends" else None
    )
    ended, gone, goes_on, waits = await fuse(storage, asked, handlers.run, now=NOW)
    assert isinstance(ended, Finished)
    assert isinstance(goes_on, Continue)
    assert (gone, waits) == (None, None)
    assert len(tables.events("ends")) == 1
    assert await prepare(storage, asked[1]) == [NotPrepared(Reason.NOT_FOUND)]
    check_invariants(dsn)


# What goes wrong.


async def test_a_lost_answer(dsn: str, storage: Storage, tables: Tables) -> None:
    """It was committed, and nobody heard: the request finds its own answer, and no handler runs again."""
    await start(storage)
    connections = LossyConnections(dsn, limit=1)
    lossy, handlers = Storage(connections, patience=SECOND), Handlers(lambda _: resume())
    asked = request()
    connections.late = 1
    with pytest.raises(Doubtful):
        await fuse(lossy, [asked], handlers.run, now=NOW)
    ((found,), _) = await prepare(lossy, asked), await connections.close()
    assert isinstance(found, Duplicate)
    assert found.answer == TaskOutcome(TaskStatus.FINISHED, b"answer")
    assert len(handlers.seen) == 1


async def test_a_lost_answer_of_what_goes_on(dsn: str, storage: Storage, tables: Tables) -> None:
    """It was committed as running, and nobody heard: the request finds that it is its own to run."""
    await start(storage)
    connections = LossyConnections(dsn, limit=1)
    lossy, asked = Storage(connections, patience=SECOND), request()
    connections.late = 1
    with pytest.raises(Doubtful):
        await fuse(lossy, [asked], Handlers(lambda _: None).run, now=NOW)
    ((found,), _) = await prepare(lossy, asked), await connections.close()
    assert isinstance(found, Continue)
    assert len(tables.tasks()) == 2


async def test_a_handler_that_raises_here_leaves_nothing(storage: Storage, tables: Tables) -> None:
    """A defect of ours in between: the transaction is rolled back, and its session is good for others."""
    await start(storage)
    before = tables.everything()

    async def run(_: Sequence[Claimed]) -> list[Decision | None]:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        await fuse(storage, [request()], run, now=NOW)
    assert tables.everything() == before
    assert isinstance(await fuse_one(storage, request(), resume()), Finished)


async def test_a_cancellation_amid_the_handlers_leaves_nothing(storage: Storage, tables: Tables) -> None:
    """The connection is dropped, and with it the transaction: the process is free for others."""
    await start(storage)
    before, begun = tables.everything(), asyncio.Event()

    async def run(_: Sequence[Claimed]) -> list[Decision | None]:
        begun.set()
        await asyncio.Event().wait()
        return []

    flight = asyncio.create_task(fuse(storage, [request()], run, now=NOW))
    await begun.wait()
    flight.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flight
    assert isinstance(await fuse_one(storage, request(), resume()), Finished)
    assert len(tables.tasks()) == len(before["tasks"]) + 1


async def test_the_process_is_locked_while_its_handler_runs(
    storage: Storage, tables: Tables, dsn: str
) -> None:
    """Whoever wants it meanwhile waits for the commit, and finds what it left."""
    await start(storage)
    waiting: list[asyncio.Task[Any]] = []

    async def run(claimed: Sequence[Claimed]) -> list[Decision | None]:
        waiting.append(asyncio.create_task(prepare(storage, request(key="other"))))
        async with asyncio.timeout(30):
            while not tables.waiting():  # noqa: ASYNC110 - there is no event to wait on
                await asyncio.sleep(0.01)
        return [resume() for _ in claimed]

    (outcome,) = await fuse(storage, [request()], run, now=NOW)
    assert isinstance(outcome, Finished)
    ((other,),) = await asyncio.gather(*waiting)
    assert isinstance(other, Continue)
    assert other.task.task_id > outcome.task.task_id
    check_invariants(dsn)


async def test_two_starts_of_one_process(storage: Storage, dsn: str) -> None:
    """The second waits for the first, and is told that it is there; its handler does not run."""
    handlers, second = Handlers(lambda _: resume()), []

    async def run(claimed: Sequence[Claimed]) -> list[Decision | None]:
        second.append(asyncio.create_task(fuse(storage, [init()], handlers.run, now=NOW)))
        with psycopg.connect(dsn, autocommit=True) as connection:
            tables = Tables(connection)
            async with asyncio.timeout(30):
                while not tables.waiting():  # noqa: ASYNC110 - there is no event to wait on
                    await asyncio.sleep(0.01)
        return [resume() for _ in claimed]

    (first,) = await fuse(storage, [init()], run, now=NOW)
    assert isinstance(first, Finished)
    assert await second[0] == [None]
    assert handlers.seen == []
    assert await prepare(storage, init()) == [NotPrepared(Reason.EXISTS)]
    check_invariants(dsn)
