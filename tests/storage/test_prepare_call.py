"""prepare_call, for calls and notifies: the mailbox of a process, in the order of acceptance."""

from __future__ import annotations

from datetime import timedelta

import pytest

from progressor.model import ProcessStatus, TaskStatus, TaskType
from progressor.storage.operations import Storage
from progressor.storage.values import Continue, Duplicate, NotPrepared, Postpone, Reason, TaskOutcome
from tests.support import (
    NS,
    SECOND,
    T0,
    WORKER,
    Tables,
    break_process,
    claim_calls,
    collect,
    events,
    fail,
    hold,
    ids,
    init,
    postponed,
    refuse,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

both = pytest.mark.parametrize("kind", [TaskType.CALL, TaskType.NOTIFY])


@both
async def test_idle_process_runs_it(storage: Storage, tables: Tables, kind: TaskType) -> None:
    """A caller with a free worker holds the task, with the state that the process has."""
    made = resume(aux_state=b"state", events=events(2), metadata={"plan": "pro"})
    await start(storage, "p1", made)
    asked = request("p1", kind, name="pay", reply_to=9, args=b"", context=b"ctx")
    now = T0 + SECOND
    (result,) = await storage.prepare_call([asked], now=now)
    assert isinstance(result, Continue)
    task, process = result.task, result.process
    assert (task.task_type, task.name, task.reply_to) == (kind, "pay", 9)
    assert (task.args, task.context, task.worker_id) == (b"", b"ctx", WORKER)
    assert task.scheduled_time == task.running_time == now
    assert (process.status, process.previous_status) == (ProcessStatus.RUNNING, ProcessStatus.INIT)
    assert (process.aux_state, process.metadata, process.last_event_id) == (
        b"state",
        {"plan": "pro"},
        2,
    )
    assert tables.outline() == [("init", "finished"), (kind, "running")]


@both
async def test_without_a_worker_it_waits(storage: Storage, tables: Tables, kind: TaskType) -> None:
    """A caller without a free worker leaves the task to be claimed."""
    await start(storage)
    await wait(storage, request("p1", kind, worker_id=None))
    (row,) = tables.schedule()
    assert (row["task_type"], row["status"], row["claimable"]) == (kind, "waiting", True)


@both
async def test_missing_process(storage: Storage, tables: Tables, kind: TaskType) -> None:
    """A call of no process is refused, and leaves nothing."""
    (result,) = await storage.prepare_call([request("p1", kind)], now=T0)
    assert result == NotPrepared(Reason.NOT_FOUND)
    assert tables.tasks() == []


@both
async def test_broken_process(storage: Storage, tables: Tables, kind: TaskType) -> None:
    """A call of a broken process is refused with the reason why it broke."""
    await break_process(storage)
    before = tables.everything()
    (result,) = await storage.prepare_call([request("p1", kind)], now=T0)
    assert result == NotPrepared(Reason.BROKEN, "ValueError: no")
    assert tables.everything() == before


async def test_busy_process(storage: Storage, tables: Tables) -> None:
    """While a task runs, a call waits in the mailbox and cannot be claimed."""
    await start(storage)
    await hold(storage, request())
    await wait(storage, request())
    assert tables.outline()[1:] == [("call", "running"), ("call", "waiting")]
    assert await claim_calls(storage) == []


async def test_call_waits_for_init(storage: Storage, tables: Tables) -> None:
    """A call made during init is accepted and waits for it, whether init runs or waits itself."""
    await hold(storage, init("running"))
    await wait(storage, request("running"))
    (first,) = await storage.prepare_init([init("waiting", worker_id=None)], now=T0)
    await wait(storage, request("waiting"))
    assert ids(await claim_calls(storage)) == [postponed(first).task_id]


async def test_call_waits_behind_a_waiting_call(storage: Storage) -> None:
    """A free worker does not let a call overtake one that waits on an idle process."""
    await start(storage)
    first = await wait(storage, request(worker_id=None))
    await wait(storage, request())
    assert ids(await claim_calls(storage)) == [first.task_id]


@pytest.mark.parametrize("worker_id", [WORKER, None])
async def test_blocks_the_timer(storage: Storage, tables: Tables, worker_id: str | None) -> None:
    """A call blocks the live timer, whether it runs or waits; due timers too."""
    await start(storage, "p1", set_timer(SECOND))
    await storage.prepare_call([request(worker_id=worker_id)], now=T0 + timedelta(hours=1))
    timer = tables.schedule()[0]
    assert (timer["task_type"], timer["status"], timer["claimable"]) == ("timeout", "blocked", False)
    assert timer["scheduled_time"] == T0 + SECOND


async def test_blocks_the_removal(storage: Storage, tables: Tables) -> None:
    """A scheduled removal is a timer: a call goes before it."""
    await start(storage, "p1", set_timer(SECOND, remove=True))
    await hold(storage, request(), now=T0 + timedelta(hours=1))
    assert tables.outline()[1:] == [("remove", "blocked"), ("call", "running")]


async def test_batch_keeps_the_order_of_one_process(storage: Storage, tables: Tables) -> None:
    """Of several calls on one process the first runs, and the others wait in their order."""
    await start(storage, "p1", set_timer(SECOND))
    await start(storage, "p2")
    items = [
        request("p1", args=b"1"),
        request("p2", args=b"1"),
        request("p1", args=b"2"),
        request("p1", TaskType.NOTIFY, args=b"3"),
        request("p2", args=b"2", worker_id=None),
    ]
    results = await storage.prepare_call(items, now=T0)
    assert [type(result) for result in results] == [
        Continue,
        Continue,
        Postpone,
        Postpone,
        Postpone,
    ]
    mailbox = [row["args"] for row in tables.tasks("p1") if row["args"] != b"args"]
    assert [args for args in mailbox if args] == [b"1", b"2", b"3"]
    assert tables.outline("p1")[1:] == [
        ("timeout", "blocked"),
        ("call", "running"),
        ("call", "waiting"),
        ("notify", "waiting"),
    ]


async def test_first_of_the_batch_without_a_worker(storage: Storage, tables: Tables) -> None:
    """If the first call cannot run, a later one of the same batch does not overtake it."""
    await start(storage)
    results = await storage.prepare_call([request(worker_id=None), request()], now=T0)
    assert [type(result) for result in results] == [Postpone, Postpone]
    assert [row["claimable"] for row in tables.schedule()] == [True, False]


async def test_batch_of_all_outcomes(storage: Storage, tables: Tables) -> None:
    """Each item of a batch gets its own outcome, in the order of the items."""
    await start(storage, "idle")
    await start(storage, "busy")
    busy = await hold(storage, request("busy", key="k"))
    await break_process(storage, "broken")
    results = await storage.prepare_call(
        [
            request("missing"),
            request("broken"),
            request("busy", key="k"),
            request("busy", key="k2"),
            request("idle"),
        ],
        now=T0,
    )
    assert results[0] == NotPrepared(Reason.NOT_FOUND)
    assert results[1] == NotPrepared(Reason.BROKEN, "ValueError: no")
    assert isinstance(results[2], Duplicate)
    assert results[2].task.task_id == busy.task.task_id
    assert isinstance(results[3], Postpone)
    assert isinstance(results[4], Continue)


async def test_batch_of_many(storage: Storage, tables: Tables) -> None:
    """Two hundred calls on fifty processes: one runs on each, the others wait in order."""
    await storage.prepare_init([init(f"p{place}", worker_id=None) for place in range(50)], now=T0)
    for step in await claim_calls(storage):
        await save(storage, step, resume())
    items = [request(f"p{place % 50}", args=str(place).encode()) for place in range(200)]
    results = await storage.prepare_call(items, now=T0)
    assert [type(result) for result in results] == [Continue] * 50 + [Postpone] * 150
    order = [int(row["args"]) for row in tables.tasks("p7") if row["task_type"] == "call"]
    assert order == [7, 57, 107, 157]


async def test_duplicate_waiting(storage: Storage, tables: Tables) -> None:
    """The key of a waiting call leads to its task; it is not put into the mailbox again."""
    await start(storage)
    first = await wait(storage, request(key="k", worker_id=None))
    (second,) = await storage.prepare_call([request(key="k")], now=T0)
    assert second == Duplicate(first, TaskOutcome(TaskStatus.WAITING))
    assert len(tables.tasks()) == 2


async def test_duplicate_running(storage: Storage) -> None:
    """The key of a running call leads to its task; a second worker does not get it."""
    await start(storage)
    first = await hold(storage, request(key="k"))
    (second,) = await storage.prepare_call([request(key="k")], now=T0)
    assert isinstance(second, Duplicate)
    assert (second.task.task_id, second.answer) == (first.task.task_id, TaskOutcome(TaskStatus.RUNNING))


async def test_duplicate_finished(storage: Storage) -> None:
    """The key of a finished call gets the stored answer."""
    await start(storage)
    await save(storage, await hold(storage, request(key="k")), resume())
    (second,) = await storage.prepare_call([request(key="k")], now=T0)
    assert isinstance(second, Duplicate)
    assert second.answer == TaskOutcome(TaskStatus.FINISHED, b"answer")


async def test_duplicate_refused(storage: Storage) -> None:
    """The key of a refused call gets the rejection."""
    await start(storage)
    await save(storage, await hold(storage, request(key="k")), refuse("poor", missing=3))
    (second,) = await storage.prepare_call([request(key="k")], now=T0)
    assert isinstance(second, Duplicate)
    rejection = second.answer.rejection()
    assert rejection is not None
    assert (rejection.reason, rejection.details, rejection.invalid) == ("poor", {"missing": 3}, False)


async def test_duplicate_on_a_broken_process(storage: Storage) -> None:
    """The call that broke the process is answered by its key, not by the state of the process."""
    await start(storage)
    broken = await hold(storage, request(key="k"))
    waiting = await wait(storage, request(key="k2"))
    await save(storage, broken, fail("KeyError: 'x'"))
    results = await storage.prepare_call([request(key="k"), request(key="k2")], now=T0)
    assert [result.answer for result in results] == [  # type: ignore[union-attr]
        TaskOutcome(TaskStatus.ERROR, None, "KeyError: 'x'"),
        TaskOutcome(TaskStatus.CANCELLED, None, "KeyError: 'x'"),
    ]
    assert results[1].task == waiting  # type: ignore[union-attr]


async def test_same_key_for_another_request(storage: Storage, tables: Tables) -> None:
    """A key is bound to one request, also after it is finished."""
    await start(storage)
    first = await hold(storage, request(key="k"))
    other = request(key="k", request_hash=b"other")
    assert await storage.prepare_call([other], now=T0) == [NotPrepared(Reason.CONFLICT)]
    await save(storage, first, resume())
    assert await storage.prepare_call([other], now=T0) == [NotPrepared(Reason.CONFLICT)]
    assert len(tables.tasks()) == 2


async def test_key_is_gone_with_the_process(storage: Storage) -> None:
    """After a removal the key of a call leads nowhere."""
    await start(storage)
    await save(storage, await hold(storage, request(key="k")), resume())
    await storage.remove(NS, "p1")
    (result,) = await storage.prepare_call([request(key="k")], now=T0)
    assert result == NotPrepared(Reason.NOT_FOUND)


async def test_paused_namespace(storage: Storage, tables: Tables) -> None:
    """In a paused namespace a call is accepted and blocks the timer, but no worker gets it."""
    await start(storage, "p1", set_timer(SECOND))
    tables.set_namespace(paused=True)
    await wait(storage, request())
    assert tables.outline()[1:] == [("timeout", "blocked"), ("call", "waiting")]
    assert await claim_calls(storage) == []
    tables.set_namespace(paused=False)
    assert len(await claim_calls(storage)) == 1


@pytest.mark.parametrize("worker_id", [WORKER, None])
async def test_beside_a_timer_that_cannot_be_read(
    storage: Storage, tables: Tables, worker_id: int | None
) -> None:
    """What is committed by then is not denied: its caller waits, and a collector has the last word."""
    await start(storage, "p1", set_timer(100 * SECOND))
    tables.execute("UPDATE schedule SET scheduled_time = 'infinity'")
    tables.execute("UPDATE tasks SET scheduled_time = 'infinity' WHERE task_type = 'timeout'")
    asked = request(worker_id=worker_id)
    ref = postponed((await storage.prepare_call([asked], now=T0))[0])
    (again,) = await storage.prepare_call([asked], now=T0)
    assert postponed(again) == ref
    assert tables.execute("SELECT max(task_id) AS last FROM tasks") == [{"last": ref.task_id}]
    if worker_id is None:
        assert await claim_calls(storage) == []
    row = tables.running()
    assert row is not None
    assert row["task_id"] == ref.task_id
    tables.set_collector()
    assert ref.task_id in {each.task.task_id for each in await collect(storage, T0 + 100 * SECOND)}
