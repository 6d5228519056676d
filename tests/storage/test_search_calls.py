"""search_calls: claim the oldest waiting init, call, notify and repair tasks of idle processes."""

from __future__ import annotations

import pytest

from progressor.loggers import message_of
from progressor.model import ProcessStatus, TaskType
from progressor.storage.operations import Storage
from tests.support import (
    NS,
    OTHER_WORKER,
    SECOND,
    T0,
    WORKER,
    LossyConnections,
    Tables,
    break_process,
    claim_calls,
    claim_timers,
    collect,
    events,
    hold,
    ids,
    init,
    number,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)


async def test_nothing_to_claim(storage: Storage) -> None:
    """Where nothing waits, nothing is claimed."""
    assert await claim_calls(storage) == []


async def test_claims_with_all_that_the_worker_needs(storage: Storage, tables: Tables) -> None:
    """A claim carries the task and its process, so that the worker need not read them."""
    await start(storage, "p1", resume(aux_state=b"state", metadata={"a": 1}, events=events(2)))
    asked = request(worker_id=None, key="k", args=b"\x00", context=b"ctx", name="pay")
    ref = await wait(storage, asked)
    lease = number()
    now = T0 + SECOND
    (found,) = await storage.search("calls", NS, 5, worker_id=OTHER_WORKER, lease=lease, now=now)
    task, process = found.task, found.process
    assert (task.task_id, task.task_type, task.name) == (ref.task_id, TaskType.CALL, "pay")
    assert (task.args, task.context, task.idempotency_key) == (b"\x00", b"ctx", "k")
    assert (task.scheduled_time, task.running_time) == (T0, now)
    assert (task.worker_id, task.lease, task.attempts_count) == (OTHER_WORKER, lease, 0)
    assert (process.status, process.aux_state, process.metadata) == (
        ProcessStatus.RUNNING,
        b"state",
        {"a": 1},
    )
    assert process.last_event_id == 2
    assert tables.outline()[-1] == ("call", "running")


async def test_claims_every_mailbox_type(storage: Storage) -> None:
    """Inits, calls, notifies and repairs are claimed alike; timers are not."""
    await storage.prepare_init([init("init", worker_id=None)], now=T0)
    await start(storage, "call")
    await wait(storage, request("call", worker_id=None))
    await start(storage, "notify", set_timer(SECOND))
    await wait(storage, request("notify", TaskType.NOTIFY, worker_id=None))
    await break_process(storage, "repair")
    await wait(storage, repair("repair", worker_id=None))
    await start(storage, "timer", set_timer(SECOND))
    found = await claim_calls(storage, now=T0 + 2 * SECOND)
    assert {step.task.task_type for step in found} == {
        TaskType.INIT,
        TaskType.CALL,
        TaskType.NOTIFY,
        TaskType.REPAIR,
    }


async def test_oldest_first_up_to_the_limit(storage: Storage) -> None:
    """The limit takes the oldest, by the time of acceptance; the rest stays for the next claim."""
    order = ["c", "a", "d", "b"]
    for place, process_id in enumerate(order):
        asked = init(process_id, worker_id=None)
        await storage.prepare_init([asked], now=T0 + place * SECOND)
    first = await claim_calls(storage, 3)
    assert [step.task.process_id for step in first] == ["c", "a", "d"]
    assert [step.task.process_id for step in await claim_calls(storage, 3)] == ["b"]


async def test_limit_of_none(storage: Storage) -> None:
    """A worker without a free slot claims nothing."""
    await storage.prepare_init([init(worker_id=None)], now=T0)
    assert await claim_calls(storage, 0) == []


async def test_one_task_of_a_process(storage: Storage) -> None:
    """Of a long mailbox only the first is claimed, and the next only after it is saved."""
    await start(storage)
    refs = [await wait(storage, request(worker_id=None)) for _ in range(3)]
    (first,) = await claim_calls(storage)
    assert first.task.task_id == refs[0].task_id
    assert await claim_calls(storage) == []
    await save(storage, first, resume(), keeps_slot=False)
    assert ids(await claim_calls(storage)) == [refs[1].task_id]


async def test_call_goes_before_a_due_timer(storage: Storage) -> None:
    """While a call waits, the timer of its process is not claimed, however due it is."""
    await start(storage, "p1", set_timer(SECOND))
    await wait(storage, request(worker_id=None))
    assert await claim_timers(storage, now=T0 + 2 * SECOND) == []
    assert len(await claim_calls(storage)) == 1


async def test_other_namespaces_are_left(storage: Storage) -> None:
    """A worker claims what it serves."""
    await storage.prepare_init([init(worker_id=None, namespace="shop.other")], now=T0)
    assert await claim_calls(storage) == []


async def test_paused_namespace(storage: Storage, tables: Tables) -> None:
    """In a paused namespace nothing is claimed until it goes on."""
    await storage.prepare_init([init(worker_id=None)], now=T0)
    tables.set_namespace(paused=True)
    assert await claim_calls(storage) == []
    tables.set_namespace(paused=False)
    assert len(await claim_calls(storage)) == 1


async def test_two_hundred(storage: Storage, tables: Tables) -> None:
    """A large claim takes each task once, all under one lease."""
    await storage.prepare_init([init(f"p{place}", worker_id=None) for place in range(200)], now=T0)
    found = await claim_calls(storage, 150)
    assert len({step.task.process_id for step in found}) == 150
    assert len({step.task.lease for step in found}) == 1
    assert len(await claim_calls(storage, 150, worker_id=OTHER_WORKER)) == 50


async def test_leases_are_apart(storage: Storage) -> None:
    """A claim returns what it took, not what the worker holds from other claims."""
    await hold(storage, init("held", worker_id=WORKER))
    await storage.prepare_init([init("waiting", worker_id=None)], now=T0)
    assert [step.task.process_id for step in await claim_calls(storage)] == ["waiting"]


LARGE = b"x" * 100_000


async def test_large_values_come_as_far_as_there_is_room(storage: Storage, tables: Tables) -> None:
    """Of tasks with large values a claim hands out what has room, in order; the others wait on."""
    await start(storage, "state", resume(aux_state=LARGE))
    asked = [
        init("args", worker_id=None, args=LARGE),
        init("small", worker_id=None, args=b"1"),
        request("state", worker_id=None, args=None),
        init("context", worker_id=None, args=b"2", context=LARGE),
        init("last", worker_id=None, args=b"3"),
    ]
    waiting = {each.process_id: await wait(storage, each) for each in asked}

    async def claim(room: int) -> list[tuple[str, bytes | None, bytes | None, bytes | None]]:
        found = await storage.search("calls", NS, 100, worker_id=WORKER, lease=number(), room=room, now=T0)
        return [
            (each.task.process_id, each.task.args, each.task.context, each.process.aux_state)
            for each in found
        ]

    assert await claim(150_000) == [
        ("args", LARGE, None, None),
        ("small", b"1", None, None),
        ("state", None, None, LARGE),
        ("last", b"3", None, None),
    ]
    left = tables.task(waiting["context"].task_id)
    assert left is not None
    assert (left["status"], left["attempts_count"]) == ("waiting", None)
    # However large, one goes on.
    assert await claim(1) == [("context", b"2", LARGE, None)]
    assert await claim(1) == []


async def test_a_large_claim_whose_answer_was_lost(storage: Storage, dsn: str) -> None:
    """The second try finds the tasks of the first one, and their large values with them."""
    await wait(storage, init("p1", worker_id=None, args=LARGE))
    lossy = LossyConnections(dsn, limit=1)
    lossy.late = 1
    (step,) = await claim_calls(Storage(lossy, patience=SECOND))
    assert step.task.args == LARGE
    await lossy.close()


async def test_a_large_task_that_is_removed_amid_its_claim(storage: Storage, dsn: str) -> None:
    """What is gone when its values are read is not handed out."""
    await wait(storage, init("p1", worker_id=None, args=LARGE))
    await wait(storage, init("p2", worker_id=None, args=LARGE))
    lossy = LossyConnections(dsn, limit=1)
    lossy.spared, lossy.late = 1, 1

    async def meanwhile() -> None:
        await storage.remove(NS, "p1")

    # After the claim the first reading is lost, and with it what was read.
    lossy.meanwhile = meanwhile
    (step,) = await claim_calls(Storage(lossy, patience=SECOND))
    assert (step.task.process_id, step.task.args) == ("p2", LARGE)
    await lossy.close()


async def test_a_task_that_cannot_be_read_costs_itself_only(
    storage: Storage, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """Values that somebody wrote by hand: the others of its claim are run, and a collector takes it."""
    refs = {name: await wait(storage, init(name, worker_id=None)) for name in ("p1", "bad", "p2", "long")}
    tables.execute("UPDATE processes SET status_changed_at = 'infinity' WHERE process_id = 'bad'")
    # More digits than Python makes an int of; how deep JSON may be nested is another depth in each version.
    tables.execute("UPDATE processes SET metadata = repeat('9', 5000)::jsonb WHERE process_id = 'long'")
    assert [step.task.process_id for step in await claim_calls(storage)] == ["p1", "p2"]
    said = [each for each in caplog.records if message_of(each) == "claimed task cannot be read"]
    assert [vars(each)["task_id"] for each in said] == [refs["bad"].task_id, refs["long"].task_id]
    assert await claim_calls(storage) == []
    tables.set_collector()
    zombies = await collect(storage, T0 + 100 * SECOND)
    assert {"bad", "long"} <= {each.process_id for each in zombies}


async def test_a_lost_claim_of_a_task_that_cannot_be_read(
    storage: Storage, tables: Tables, dsn: str
) -> None:
    """Neither does it when the answer was lost besides."""
    for name in ("bad", "p1"):
        await wait(storage, init(name, worker_id=None))
    tables.execute("UPDATE processes SET status_changed_at = 'infinity' WHERE process_id = 'bad'")
    lossy = LossyConnections(dsn, limit=1)
    lossy.early = 1
    found: list[str] = []
    for _ in range(2):
        found += [each.task.process_id for each in await claim_calls(Storage(lossy, patience=SECOND))]
    assert found == ["p1"]
    await lossy.close()


async def test_functions_that_are_left(storage: Storage) -> None:
    """Their requests stay at the head of their mailboxes; those of others are claimed in order."""
    for process_id in ("p1", "p2", "p3"):
        await start(storage, process_id)
    await break_process(storage, "p4")
    refs = [
        await wait(storage, request(process_id, worker_id=None, name=name))
        for process_id, name in (("p1", "refund"), ("p2", "pay"), ("p1", "pay"), ("p3", "init"))
    ]
    await wait(storage, repair("p4", worker_id=None))
    await wait(storage, init("p5", worker_id=None))
    left = ["call refund", "repair", "init"]
    found = await storage.search("calls", NS, 9, worker_id=WORKER, lease=number(), left=left, now=T0)
    assert [each.task.task_id for each in found] == [refs[1].task_id, refs[3].task_id]
    others = await claim_calls(storage)
    assert [each.task.function for each in others] == ["call refund", "repair", "init"]
