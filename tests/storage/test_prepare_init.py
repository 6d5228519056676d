"""prepare_init: a process and its init task are made together, once."""

from __future__ import annotations

from progressor.model import ProcessStatus, TaskStatus, TaskType
from progressor.storage.operations import Storage
from progressor.storage.values import Continue, Duplicate, NotPrepared, Postpone, Reason, TaskOutcome
from tests.support import (
    NS,
    T0,
    WORKER,
    Tables,
    hold,
    init,
    postponed,
    prepare,
    refuse_init,
    request,
    resume,
    save,
    start,
)


async def test_with_a_worker_it_runs(storage: Storage, tables: Tables) -> None:
    """The caller's worker holds the task, with the process as it was made."""
    asked = init(args=b"\x00\xff", context=b"ctx", name="x", process_metadata={"plan": "pro"})
    (result,) = await storage.prepare_init([asked], now=T0)
    assert isinstance(result, Continue)
    task, process = result.task, result.process
    assert (task.namespace, task.process_id, task.task_type) == (NS, "p1", TaskType.INIT)
    assert (task.args, task.context, task.name) == (b"\x00\xff", b"ctx", "x")
    assert (task.worker_id, task.lease, task.attempts_count) == (WORKER, asked.lease, 0)
    assert task.scheduled_time == task.running_time == T0
    assert (process.status, process.previous_status) == (ProcessStatus.INIT, None)
    assert (process.metadata, process.aux_state, process.last_event_id) == ({"plan": "pro"}, None, 0)
    assert process.created_at == process.status_changed_at == T0
    row = tables.task(task.task_id)
    assert row is not None
    assert (row["args"], row["context"], row["name"]) == (b"\x00\xff", b"ctx", "x")
    assert tables.outline() == [("init", "running")]


async def test_without_a_worker_it_waits(storage: Storage, tables: Tables) -> None:
    """A caller without a free worker leaves the task to be claimed."""
    (result,) = await storage.prepare_init([init(worker_id=None)], now=T0)
    assert isinstance(result, Postpone)
    (row,) = tables.schedule()
    assert (row["task_id"], row["status"], row["claimable"]) == (
        result.task.task_id,
        "waiting",
        True,
    )


async def test_taken_id_is_refused(storage: Storage, tables: Tables) -> None:
    """A second start of an id is refused, whatever the process does; nothing is written."""
    await start(storage, "idle")
    await hold(storage, init("busy"))
    await storage.prepare_init([init("waiting", worker_id=None)], now=T0)
    before = tables.everything()
    again = [init("idle"), init("busy"), init("waiting"), init("waiting", worker_id=None)]
    for each in again:
        assert await storage.prepare_init([each], now=T0) == [NotPrepared(Reason.EXISTS)]
    assert tables.everything() == before


async def test_duplicate_of_a_running_init(storage: Storage) -> None:
    """The key of an init in flight leads to its task, which nobody gets a second time."""
    first = await hold(storage, init(key="k"))
    (second,) = await storage.prepare_init([init(key="k")], now=T0)
    assert isinstance(second, Duplicate)
    assert second.task.task_id == first.task.task_id
    assert second.answer == TaskOutcome(TaskStatus.RUNNING)


async def test_duplicate_of_a_waiting_init(storage: Storage) -> None:
    """The key of a waiting init leads to its task; a free worker does not take it in passing."""
    (first,) = await storage.prepare_init([init(key="k", worker_id=None)], now=T0)
    (second,) = await storage.prepare_init([init(key="k")], now=T0)
    assert isinstance(second, Duplicate)
    assert second.task == postponed(first)
    assert second.answer == TaskOutcome(TaskStatus.WAITING)


async def test_duplicate_of_a_finished_init(storage: Storage) -> None:
    """The key of a finished init gets the stored answer."""
    await save(storage, await hold(storage, init(key="k")), resume())
    (second,) = await storage.prepare_init([init(key="k")], now=T0)
    assert isinstance(second, Duplicate)
    assert second.answer == TaskOutcome(TaskStatus.FINISHED, b"answer")


async def test_same_key_for_another_request(storage: Storage) -> None:
    """A key is bound to one request."""
    await hold(storage, init(key="k"))
    (second,) = await storage.prepare_init([init(key="k", request_hash=b"other")], now=T0)
    assert second == NotPrepared(Reason.CONFLICT)


async def test_refused_start_may_be_tried_again(storage: Storage, tables: Tables) -> None:
    """A refused init leaves its answer for its key, and the id free for another."""
    first = await hold(storage, init(key="k"))
    await save(storage, first, refuse_init("no such plan"))
    assert tables.process() is None

    (same,) = await storage.prepare_init([init(key="k")], now=T0)
    assert isinstance(same, Duplicate)
    rejection = same.answer.rejection()
    assert rejection is not None
    assert rejection.reason == "no such plan"
    assert tables.process() is None

    second = await hold(storage, init(key="other"))
    assert second.task.task_id != first.task.task_id
    await save(storage, second, resume())
    assert tables.outline() == [("init", "error"), ("init", "finished")]


async def test_key_is_free_after_removal(storage: Storage) -> None:
    """Who removes a process by hand removes its keys with it: the key starts a new life."""
    await start(storage, key="k")
    await storage.remove(NS, "p1")
    again = await hold(storage, init(key="k"))
    assert again.process.status is ProcessStatus.INIT


async def test_keys_belong_to_a_process(storage: Storage) -> None:
    """The same key on two processes is two requests."""
    results = await storage.prepare_init([init("p1", key="k"), init("p2", key="k")], now=T0)
    assert [type(result) for result in results] == [Continue, Continue]


async def test_batch_of_all_outcomes(storage: Storage, tables: Tables) -> None:
    """Each item of a batch gets its own outcome, in the order of the items."""
    await start(storage, "taken")
    await hold(storage, init("twice", key="k"))
    items = [
        init("z"),
        init("taken"),
        init("a", worker_id=None),
        init("twice", key="k"),
        init("m"),
    ]
    results = await storage.prepare_init(items, now=T0)
    assert [type(result) for result in results] == [
        Continue,
        NotPrepared,
        Postpone,
        Duplicate,
        Continue,
    ]
    assert tables.outline("a") == [("init", "waiting")]


async def test_batch_of_many(storage: Storage, tables: Tables) -> None:
    """Two hundred starts are one transaction, and each finds its own task."""
    items = [init(f"p{place}", args=str(place).encode()) for place in range(200)]
    results = await storage.prepare_init(items, now=T0)
    found = [(result.task.process_id, result.task.args) for result in results]  # type: ignore[union-attr]
    assert found == [(item.process_id, item.args) for item in items]
    (count,) = tables.execute("SELECT count(DISTINCT xmin::text) AS n FROM tasks")
    assert count["n"] == 1


async def test_paused_namespace_accepts_and_waits(storage: Storage, tables: Tables) -> None:
    """In a paused namespace a start is accepted, but no worker gets it."""
    tables.set_namespace(paused=True)
    (result,) = await prepare(storage, init())
    assert isinstance(result, Postpone)
    assert tables.outline() == [("init", "waiting")]


async def test_unicode_and_long_ids(storage: Storage) -> None:
    """An id is any text of up to 256 characters; ids that differ in case or form are different."""
    names = ["ü" * 256, "u\u0308", "\u00fc", "A", "a", "a ", "'; DROP TABLE tasks; --", "{}", "\\N"]
    results = await storage.prepare_init([init(name) for name in names], now=T0)
    assert [type(result) for result in results] == [Continue] * len(names)
    again = await storage.prepare_init([init(name) for name in names], now=T0)
    assert again == [NotPrepared(Reason.EXISTS)] * len(names)


async def test_namespaces_are_apart(storage: Storage, tables: Tables) -> None:
    """The same id in two namespaces is two processes."""
    tables.set_namespace("shop.other")
    results = await storage.prepare_init([init(), init(namespace="shop.other")], now=T0)
    assert [type(result) for result in results] == [Continue, Continue]
    (call,) = await storage.prepare_call([request(namespace="shop.third")], now=T0)
    assert call == NotPrepared(Reason.NOT_FOUND)
