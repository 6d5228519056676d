"""run_bulk and what is around it: broken processes are repaired, so many a second, each once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from progressor import bulks as machine
from progressor.bulks import COUNTS, Bulk, BulkRound, BulkStatus
from progressor.config import RetryPolicy
from progressor.inputs import redo_key
from progressor.messages.message import Message, message_key
from progressor.model import Decision, Disposition, Intent, Reply, Success, TaskType
from progressor.storage.admin import bulks as bulks_module
from progressor.storage.admin.bulks import NewBulk
from progressor.storage.doctor import examine
from progressor.storage.operations import Storage
from progressor.storage.outbox import Outbox
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.values import TaskRef
from progressor.transitions import decide
from tests.support import (
    MICROSECOND,
    NS,
    SECOND,
    T0,
    LossyConnections,
    Tables,
    break_init,
    break_process,
    claim_calls,
    claim_timers,
    eventually,
    fail,
    fail_repair,
    fail_timer,
    hold,
    init,
    number,
    refuse_init,
    refuse_repair,
    removed,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

# When bulks are made: the processes broke before.
T1 = T0 + SECOND
LATER = T1 + timedelta(hours=1)
MINUTE = timedelta(minutes=1)


async def make(storage: Storage, key: str = "key", *, now: Any = T1, **fields: Any) -> Bulk:
    item = {
        "namespace": NS,
        "detail_like": None,
        "handler": None,
        "simple": True,
        "args": None,
        "request_hash": b"hash",
        "idempotency_key": key,
        "bulk_hash": b"bulk",
        "pace": MICROSECOND * 20_000,
    } | fields
    made = await storage.make_bulk(NewBulk(**item), now=now)
    assert not made.is_another
    return made.bulk


async def one_round(storage: Storage, now: Any = LATER, **given: Any) -> BulkRound:
    done = await storage.run_bulk(now=now, **given)
    assert done is not None
    return done


async def run(storage: Storage, *, now: Any = LATER) -> Bulk:
    """Rounds, each a minute later, until the bulk has ended."""
    for _ in range(100):
        done = await one_round(storage, now)
        if done.bulk.status.is_final:
            return done.bulk
        now += timedelta(minutes=1)
    raise AssertionError("it does not end")


def counts(bulk: Bulk) -> dict[str, int]:
    """All counts but those that are 0."""
    return {name: value for name in COUNTS if (value := getattr(bulk, name))}


def statuses(tables: Tables) -> dict[str, str]:
    rows = tables.execute("SELECT process_id, status FROM processes ORDER BY process_no")
    return {row["process_id"]: row["status"] for row in rows}


async def test_without_a_handler(storage: Storage, tables: Tables) -> None:
    """All broken processes are running again, others are not touched, and the bulk has ended."""
    for process_id in ("a", "b", "c"):
        await break_process(storage, process_id)
    await start(storage, "fine")
    before = tables.process("fine")
    made = await make(storage)
    assert (made.status, made.rate, counts(made)) == (BulkStatus.RUNNING, 50, {})
    bulk = await run(storage)
    assert bulk.status is BulkStatus.FINISHED
    assert counts(bulk) == {"looked_at": 3, "begun": 3, "repaired": 3}
    assert set(statuses(tables).values()) == {"running"}
    assert tables.process("fine") == before
    assert await storage.run_bulk(now=LATER + SECOND) is None
    assert await storage.next_bulk() is None


async def test_timers_come_back(storage: Storage) -> None:
    """A timer that broke its process is due again."""
    await break_process(storage, "p1", by_timer=True)
    await make(storage)
    await run(storage)
    (timer,) = await claim_timers(storage, now=LATER)
    assert timer.task.process_id == "p1"


@pytest.mark.parametrize("simple", [True, False])
async def test_an_init_runs_anew(storage: Storage, tables: Tables, simple: bool) -> None:
    """Of processes that their inits broke, the end of the init is the end of the repair."""
    for name in ("well", "failing", "refusing", "gone"):
        await break_init(storage, name)
    await make(storage, simple=simple, args=None if simple else b"how")
    done = await one_round(storage)
    assert counts(done.bulk) == {"looked_at": 4, "begun": 4}
    if not simple:
        for step in await claim_calls(storage, now=LATER):
            decision = decide(step.process, step.task, Success(Intent()), RetryPolicy())
            await storage.save_result([step.step(decision, keeps_slot=False)], now=LATER)
    assert set(statuses(tables).values()) == {"init"}
    done = await one_round(storage, LATER + SECOND)
    assert (done.bulk.under_way, done.bulk.status) == (4, BulkStatus.RUNNING)
    now = LATER + 2 * SECOND
    held = {each.task.process_id: each for each in await claim_calls(storage, now=now)}
    assert {each.task.task_type for each in held.values()} == {TaskType.INIT}
    await save(storage, held["well"], resume(), now=now)
    await save(storage, held["failing"], fail("KeyError: again"), now=now)
    await save(storage, held["refusing"], refuse_init("not now"), now=now)
    await storage.remove(NS, "gone")
    done = await one_round(storage, LATER + MINUTE)
    assert done.bulk.status is BulkStatus.FINISHED
    assert counts(done.bulk) == {
        "looked_at": 4, "begun": 4, "repaired": 1, "failed": 1, "refused": 1, "removed": 1,
    }  # fmt: skip
    assert statuses(tables) == {"well": "running", "failing": "error"}


async def test_a_process_that_its_repair_removes_is_repaired(storage: Storage) -> None:
    """Also where its init, which broke it, has left its failure behind."""
    await break_init(storage)
    await make(storage, simple=False, args=b"how")
    await one_round(storage)
    (step,) = await claim_calls(storage, now=LATER)
    await save(storage, step, removed(), now=LATER + SECOND)
    done = await one_round(storage, LATER + MINUTE)
    assert counts(done.bulk) == {"looked_at": 1, "begun": 1, "repaired": 1}


async def test_with_a_handler(storage: Storage, tables: Tables) -> None:
    """What became of each repair is counted once its step has ended, whichever way."""
    names = ("well", "failing", "refusing", "ending", "gone")
    for name in names:
        await break_process(storage, name)
    await make(storage, simple=False, args=b"how")
    done = await one_round(storage)
    assert counts(done.bulk) == {"looked_at": 5, "begun": 5}
    assert (done.bulk.status, done.bulk.under_way) == (BulkStatus.RUNNING, 5)
    held = {each.task.process_id: each for each in await claim_calls(storage)}
    assert {each.task.args for each in held.values()} == {b"how"}
    await save(storage, held["well"], resume())
    await save(storage, held["failing"], fail_repair("KeyError: again"))
    await save(storage, held["refusing"], refuse_repair("not now"))
    done = await one_round(storage, LATER + SECOND)
    assert done.new == dict.fromkeys(done.new, 0) | {"repaired": 1, "failed": 1, "refused": 1}
    assert done.bulk.last_error == "refusing: rejected: not now"
    await save(storage, held["ending"], removed())
    await storage.remove(NS, "gone")
    done = await one_round(storage, LATER + 2 * SECOND)
    assert done.bulk.status is BulkStatus.FINISHED
    assert counts(done.bulk) == {
        "looked_at": 5,
        "begun": 5,
        "repaired": 2,
        "failed": 1,
        "refused": 1,
        "removed": 1,
    }
    assert tables.execute("SELECT * FROM bulk_repairs") == []
    assert statuses(tables) == {"well": "running", "failing": "error", "refusing": "error"}


@pytest.mark.parametrize("is_claimed", [False, True], ids=["waiting", "running"])
@pytest.mark.parametrize("simple", [True, False], ids=["simple", "handler"])
async def test_a_dry_run_is_waited_for(storage: Storage, simple: bool, is_claimed: bool) -> None:
    """The bulk goes on behind it, and passes nothing by; what came before it is begun at once."""
    for name in ("a", "dry", "c"):
        await break_process(storage, name)
    dry = repair("dry", name="dry_run")
    step = await hold(storage, dry) if is_claimed else None
    if step is None:
        await wait(storage, dry._replace(worker_id=None))
    await make(storage, simple=simple)
    done = await one_round(storage)
    assert done.new == dict.fromkeys(COUNTS, 0) | {
        "looked_at": 1,
        "begun": 1,
        "repaired": 1 if simple else 0,
    }
    for more in range(1, 3):
        done = await one_round(storage, LATER + more * SECOND)
        assert (done.bulk.status, any(done.new.values())) == (BulkStatus.RUNNING, False)
    if step is None:
        (step,) = [each for each in await claim_calls(storage, now=LATER) if each.task.process_id == "dry"]
    await save(storage, step, Decision(Disposition.HOLD, Reply(response=b"seen")), now=LATER)
    done = await one_round(storage, LATER + 3 * SECOND)
    assert (done.bulk.looked_at, done.bulk.begun, done.bulk.passed_by) == (3, 3, 0)


async def test_a_dry_run_of_what_is_not_to_be_repaired(storage: Storage) -> None:
    """Nobody waits for that of a process that broke anew; another repair is none, and passes by."""
    await break_process(storage, "anew")
    await break_process(storage, "repaired")
    await make(storage, simple=False)
    await hold(storage, repair("repaired"))
    await storage.simple_repair([repair("anew")], now=T1)
    await save(storage, await hold(storage, request("anew"), now=LATER), fail(), now=LATER)
    await hold(storage, repair("anew", name="dry_run"))
    bulk = await run(storage)
    assert counts(bulk) == {"looked_at": 2, "passed_by": 1}


async def break_by_pay(storage: Storage, *names: str) -> dict[str, TaskRef]:
    """Break these processes by a call with arguments."""
    broke = {}
    for name in names:
        await start(storage, name)
        step = await hold(storage, request(name, name="pay", args=name.encode()))
        await save(storage, step, fail())
        broke[name] = TaskRef.of(step.task, step.process)
    return broke


async def redos(storage: Storage, now: Any = LATER) -> dict[str, tuple[TaskType, str | None, bytes | None]]:
    """The requests that wait, claimed."""
    return {
        each.task.process_id: (each.task.task_type, each.task.name, each.task.args)
        for each in await claim_calls(storage, now=now)
    }


@pytest.mark.parametrize("simple", [True, False], ids=["simple", "handler"])
async def test_with_redo(storage: Storage, tables: Tables, simple: bool) -> None:
    """Each repaired process gets the call that broke it once more; a timer or an init is not redone."""
    await break_by_pay(storage, "a", "b", "refusing")
    await break_process(storage, "timer", by_timer=True)
    await break_init(storage, "init")
    await make(storage, simple=simple, redo=True)
    done = await one_round(storage)
    assert done.bulk.begun == 5
    if not simple:
        held = {each.task.process_id: each for each in await claim_calls(storage, now=LATER)}
        for name in ("a", "b", "timer"):
            await save(storage, held[name], resume(), now=LATER)
        await save(storage, held["refusing"], refuse_repair("not now"), now=LATER)
        await storage.remove(NS, "init")
    else:
        await storage.remove(NS, "refusing")
        await storage.remove(NS, "init")
    done = await one_round(storage, LATER + SECOND)
    assert done.new == dict.fromkeys(COUNTS, 0) | {"redone": 2}
    assert done.bulk.status is BulkStatus.RUNNING
    claimed = await redos(storage, LATER + SECOND)
    assert claimed == {name: (TaskType.CALL, "pay", name.encode()) for name in ("a", "b")}
    done = await one_round(storage, LATER + MINUTE)
    assert (done.bulk.status, done.bulk.redone) == (BulkStatus.FINISHED, 2)
    assert (done.bulk.repaired, done.bulk.under_way) == (3, 0)
    made_by_redos = "SELECT task_id FROM tasks WHERE starts_with(idempotency_key, 'progressor:redo:')"
    assert len(tables.execute(made_by_redos)) == 2


async def test_a_redo_of_what_breaks_again_or_is_redone(storage: Storage) -> None:
    """A process that broke anew gets none, and one that somebody else redid no second one."""
    broke = await break_by_pay(storage, "again", "redone", "well")
    await make(storage, redo=True)
    await one_round(storage)
    await save(storage, await hold(storage, request("again"), now=LATER), fail(), now=LATER)
    old = broke["redone"]
    asked = request("redone", key=redo_key(old.task_id), worker_id=None, args=None, name="pay")
    await storage.redo([asked._replace(redoes=old.key, request_hash=old.request_hash or b"")], now=LATER)
    done = await run(storage, now=LATER + SECOND)
    assert counts(done) == {"looked_at": 3, "begun": 3, "repaired": 3, "redone": 1}
    assert set(await redos(storage, LATER + MINUTE)) == {"redone", "well"}


@pytest.fixture
async def outbox(dsn: str) -> AsyncIterator[Outbox]:
    connections = SessionPool(dsn, limit=1)
    yield Outbox(connections, patience=timedelta(seconds=10))
    await connections.close()


async def break_with_waiting(
    storage: Storage, process_id: str, *waiting: bytes, by_timer: bool = False
) -> None:
    """Break a process while requests with these arguments wait."""
    step, decision = await hold(storage, request(process_id, name="pay", args=b"broken")), fail()
    if by_timer:
        at_once = set_timer(timedelta(0))
        step = step.next(await save(storage, step, at_once), at_once)
        decision = fail_timer(step.task)
    for args in waiting:
        await wait(storage, request(process_id, name="pay", args=args))
    await save(storage, step, decision)


@pytest.mark.parametrize("by_timer", [False, True], ids=["call", "timer"])
@pytest.mark.parametrize("simple", [True, False], ids=["simple", "handler"])
async def test_what_was_cancelled_is_redone_too(
    storage: Storage, tables: Tables, simple: bool, by_timer: bool
) -> None:
    """In its order, behind the call that broke the process; not what an earlier break cancelled."""
    await start(storage, "a")
    await break_with_waiting(storage, "a", b"first", b"second")
    await storage.simple_repair([repair("a")])
    await break_with_waiting(storage, "a", b"third", b"fourth", by_timer=by_timer)
    await make(storage, simple=simple, redo=True)
    await one_round(storage)
    if not simple:
        (begun,) = await claim_calls(storage, now=LATER)
        await save(storage, begun, resume(), now=LATER)
    bulk = await run(storage, now=LATER + SECOND)
    wanted = ["third", "fourth"] if by_timer else ["broken", "third", "fourth"]
    assert counts(bulk) == {"looked_at": 1, "begun": 1, "repaired": 1, "redone": len(wanted)}
    assert redone_args(tables) == wanted


async def notify_broken(outbox: Outbox, storage: Storage, *sent: bytes) -> None:
    """Have a step of process `sender` send these notices to process `a`, which is broken."""
    messages = [
        Message(
            namespace=NS,
            process_id="a",
            name="pay",
            args=args,
            idempotency_key=message_key(1, 0, number()),
            request_hash=b"hash",
        )
        for args in sent
    ]
    await save(storage, await hold(storage, request("sender")), resume(messages=tuple(messages)))
    assert len((await outbox.deliver(now=T0)).refused) == len(sent)


@pytest.mark.parametrize("broken_by", ["timer", "init", "call"])
@pytest.mark.parametrize("tried", ["dry run", "failed repair", "refused repair", "all"])
async def test_what_was_cancelled_is_redone_after_repairs_that_mended_nothing(
    storage: Storage, outbox: Outbox, tables: Tables, tried: str, broken_by: str
) -> None:
    """Dry runs, failed and refused repairs: what was cancelled before and after them is run again."""
    await start(storage, "sender")
    await break_twice(storage, broken_by)
    await notify_broken(outbox, storage, b"sixth")
    ends = {
        "dry run": ("dry_run", Decision(Disposition.HOLD, Reply(response=b"seen"))),
        "failed repair": (None, fail_repair()),
        "refused repair": (None, refuse_repair()),
    }
    for place, (name, decision) in enumerate(ends.values() if tried == "all" else [ends[tried]]):
        await save(storage, await hold(storage, repair("a", name=name)), decision)
        await notify_broken(outbox, storage, f"later {place}".encode())
    await make(storage, redo=True)
    await one_round(storage)
    if broken_by == "init":
        (anew,) = await claim_calls(storage, now=LATER)
        await save(storage, anew, resume(), now=LATER, keeps_slot=False)
    bulk = await run(storage, now=LATER + SECOND)
    later = [f"later {place}" for place in range(3 if tried == "all" else 1)]
    wanted = ["fourth", "fifth", "sixth", *later]
    wanted = ["broken", *wanted] if broken_by == "call" else wanted
    assert redone_args(tables) == wanted
    assert counts(bulk) == {"looked_at": 1, "begun": 1, "repaired": 1, "redone": len(wanted)}


async def break_twice(storage: Storage, broken_by: str) -> None:
    """Break process `a`, repair it after a failed repair, and break it again; requests wait each time."""
    if broken_by == "init":
        step = await hold(storage, init("a"))
        await wait(storage, request("a", name="pay", args=b"first"))
        await save(storage, step, fail())
    else:
        # Its number is drawn long before it fires.
        await start(storage, "a", set_timer(at=T0 + SECOND, name="late"))
        await break_with_waiting(storage, "a", b"first", b"second")
    await save(storage, await hold(storage, repair("a")), fail_repair())
    await storage.simple_repair([repair("a")])
    if broken_by == "init":
        (step,) = await claim_calls(storage)
        for args in (b"fourth", b"fifth"):
            await wait(storage, request("a", name="pay", args=args))
        await save(storage, step, fail())
    elif broken_by == "call":
        await break_with_waiting(storage, "a", b"fourth", b"fifth")
    else:
        await save(storage, await hold(storage, request("a", name="pay", args=b"third")), resume())
        (step,) = await claim_timers(storage, now=T0 + SECOND)
        for args in (b"fourth", b"fifth"):
            await wait(storage, request("a", name="pay", args=args))
        await save(storage, step, fail_timer(step.task))


def redone_args(tables: Tables) -> list[str]:
    """The arguments of the requests that were run again, in their order."""
    by_redos = (
        "SELECT convert_from(args, 'UTF8') AS args FROM tasks "
        "WHERE starts_with(idempotency_key, 'progressor:redo:') ORDER BY task_id"
    )
    return [row["args"] for row in tables.execute(by_redos)]


async def test_what_came_to_a_process_that_ran_nothing_is_redone(
    storage: Storage, outbox: Outbox, tables: Tables
) -> None:
    """Of a process that was put as broken, the retention deletes all tasks that ran."""
    await start(storage, "sender")
    broke = await break_process(storage, "a", by_timer=True)
    tables.execute("DELETE FROM tasks WHERE process_no = 2 AND running_time IS NOT NULL")
    tables.execute("UPDATE processes SET corrupted_by = NULL, swept_until = %s WHERE process_no = 2", broke)
    tables.execute("INSERT INTO task_marks (task_id, marked_at) VALUES (%s, %s)", broke, T0)
    await notify_broken(outbox, storage, b"first", b"second")
    await make(storage, redo=True)
    assert (await run(storage)).redone == 2
    assert redone_args(tables) == ["first", "second"]


async def test_what_was_cancelled_is_left_if_the_process_breaks_again(storage: Storage) -> None:
    """The bulk ends, and the requests stay cancelled."""
    await start(storage, "a")
    await break_with_waiting(storage, "a", b"first", b"second")
    await make(storage, redo=True)
    await one_round(storage)
    assert (await one_round(storage, LATER + SECOND)).new["redone"] == 1
    (again,) = await claim_calls(storage, now=LATER + SECOND)
    await save(storage, again, fail(), now=LATER + SECOND)
    bulk = await run(storage, now=LATER + MINUTE)
    assert counts(bulk) == {"looked_at": 1, "begun": 1, "repaired": 1, "redone": 1}
    assert await redos(storage, LATER + MINUTE) == {}


async def test_a_redo_that_is_stopped(storage: Storage) -> None:
    """What was repaired is run again, though the bulk was stopped meanwhile; no repair begins."""
    await break_by_pay(storage, "a", "b")
    made = await make(storage, redo=True)
    await one_round(storage, most=1)
    await storage.stop_bulk(made.bulk_id, now=LATER)
    bulk = await run(storage, now=LATER + SECOND)
    assert bulk.status is BulkStatus.STOPPED
    assert counts(bulk) == {"looked_at": 1, "begun": 1, "repaired": 1, "redone": 1}
    assert set(await redos(storage, LATER + MINUTE)) == {"a"}


async def test_a_redo_that_cannot_be(storage: Storage, tables: Tables) -> None:
    """It is passed by, with the reason; the others are run again."""
    await break_by_pay(storage, "a", "bad", "c")
    tables.execute(
        "ALTER TABLE tasks ADD CONSTRAINT test "
        "CHECK (process_no <> 2 OR idempotency_key NOT LIKE 'progressor:redo:%%') NOT VALID"
    )
    await make(storage, redo=True)
    bulk = await run(storage)
    assert counts(bulk) == {"looked_at": 3, "begun": 3, "repaired": 3, "redone": 2}
    assert bulk.last_error is not None
    assert bulk.last_error.startswith("bad: it cannot be run again: PostgreSQL refused a value")
    tables.execute("ALTER TABLE tasks DROP CONSTRAINT test")


async def test_a_lost_answer_of_a_redo(dsn: str, storage: Storage) -> None:
    """The round was committed: its next try finds nothing due, and the request is not run a third time."""
    await break_by_pay(storage, "a")
    await make(storage, redo=True)
    await one_round(storage)
    lossy = LossyConnections(dsn, limit=2)
    lossy.late = 1
    bulk = await run(other(lossy), now=LATER + SECOND)
    assert (lossy.late, bulk.redone) == (0, 1)
    await lossy.close()
    assert set(await redos(storage, LATER + MINUTE)) == {"a"}


FILTERS: list[tuple[dict[str, str], set[str]]] = [
    ({}, {"call", "timer", "odd"}),
    ({"detail_like": "%no"}, {"call", "timer"}),
    ({"detail_like": "no"}, set()),
    ({"detail_like": r"100\% _"}, {"odd"}),
    ({"handler": "pay"}, {"call", "odd"}),
    ({"handler": "call pay"}, {"call", "odd"}),
    ({"handler": "timeout"}, {"timer"}),
    ({"handler": "timeout dunning"}, {"timer"}),
    ({"handler": "timeout other"}, set()),
    ({"handler": "pay", "detail_like": "ValueError%"}, {"call"}),
    ({"handler": "nobody"}, set()),
]


@pytest.mark.parametrize(("wanted", "found"), FILTERS, ids=[str(wanted) for wanted, _ in FILTERS])
async def test_filters(storage: Storage, tables: Tables, wanted: dict[str, str], found: set[str]) -> None:
    """A pattern is that of LIKE, a handler is a task's type, its call's name, or both; so in a preview."""
    await start(storage, "call")
    await save(storage, await hold(storage, request("call", name="pay")), fail())
    await break_process(storage, "timer", by_timer=True, timer="dunning")
    await start(storage, "odd")
    await save(storage, await hold(storage, request("odd", name="pay")), fail("100% x"))
    both = {"detail_like": None, "handler": None, **wanted}
    preview = await storage.preview_bulk(NS, **both)
    assert (preview.processes, preview.looked_at, preview.has_more) == (len(found), 3, False)
    assert {name for group in preview.groups for name in group.examples} == found
    made = await make(storage, **wanted)
    left = await storage.bulk(made.bulk_id)
    assert left is not None
    assert (left.left, left.has_more) == (len(found), False)
    bulk = await run(storage)
    assert {name for name, status in statuses(tables).items() if status == "running"} == found
    assert counts(bulk) == {"looked_at": 3} | (
        {"begun": len(found), "repaired": len(found)} if found else {}
    )


async def test_preview_groups(storage: Storage, tables: Tables) -> None:
    """One message with other numbers is one group; it writes nothing."""
    for n in range(5):
        await start(storage, f"p{n}")
        await save(storage, await hold(storage, request(f"p{n}", name="pay")), fail(f"order {n}7 is late"))
    await break_process(storage, "other", by_timer=True)
    before = tables.everything()
    preview = await storage.preview_bulk(NS, detail_like=None, handler=None)
    first, second = preview.groups
    assert (first.handler, first.detail, first.processes) == ("pay", "order # is late", 5)
    assert (len(first.examples), first.first_broken, first.last_broken) == (3, T0, T0)
    assert (second.handler, second.processes, second.examples) == ("timeout", 1, ("other",))
    assert tables.everything() == before
    assert tables.execute("SELECT * FROM bulks") == []


async def test_what_breaks_later_is_not_touched(storage: Storage, tables: Tables) -> None:
    """Neither a process that broke after the bulk was made, nor one that was repaired and broke again."""
    await break_process(storage, "before")
    await break_process(storage, "again")
    await start(storage, "later")
    await make(storage)
    await storage.simple_repair([repair("again")], now=T1 + SECOND)
    for process_id in ("again", "later"):
        step = await hold(storage, request(process_id), now=T1 + 2 * SECOND)
        await save(storage, step, fail(), now=T1 + 2 * SECOND)
    bulk = await run(storage)
    assert counts(bulk) == {"looked_at": 3, "begun": 1, "repaired": 1}
    assert statuses(tables) == {"before": "running", "again": "error", "later": "error"}


async def test_a_timer_from_before_that_breaks_again(storage: Storage, tables: Tables) -> None:
    """It has an earlier number than the bound; the clock tells that it broke later."""
    await break_process(storage, "p1", by_timer=True)
    await make(storage)
    await storage.simple_repair([repair("p1")], now=T1 + SECOND)
    (timer,) = await claim_timers(storage, now=T1 + 2 * SECOND)
    await save(storage, timer, fail_timer(timer.task), now=T1 + 2 * SECOND)
    assert counts(await run(storage)) == {"looked_at": 1}
    assert statuses(tables) == {"p1": "error"}


async def test_a_later_task_in_an_older_transaction(storage: Storage, tables: Tables) -> None:
    """A step whose transaction began before the bulk was made has a task that was made after it."""
    await break_process(storage, "p1")
    await make(storage)
    await storage.simple_repair([repair("p1")], now=T0)
    await save(storage, await hold(storage, request("p1"), now=T0), fail(), now=T0)
    assert counts(await run(storage)) == {"looked_at": 1}
    assert statuses(tables) == {"p1": "error"}


class Paused(SessionPool):
    """Stops before a statement is sent for the first time, until it is told to go on."""

    def __init__(self, dsn: str, before: str) -> None:
        super().__init__(dsn, limit=2)
        self._before = before
        self.there, self.go_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def acquire(self, patience: float | None = None) -> AsyncIterator[Session]:
        async with super().acquire() as session:
            send = session._send

            async def stopping(statements: Any, hints: Any = None) -> Any:
                if self._before in statements and not self.there.is_set():
                    self.there.set()
                    await self.go_on.wait()
                return await send(statements, hints)

            session._send = stopping  # type: ignore[method-assign] # for this test
            yield session
            del session._send  # type: ignore[method-assign] # likewise


@pytest.fixture
async def paused(dsn: str) -> AsyncIterator[Callable[[str], Paused]]:
    """Makes connections that stop before a statement."""
    made: list[Paused] = []

    def make_one(before: str) -> Paused:
        made.append(Paused(dsn, before))
        return made[-1]

    yield make_one
    for each in made:
        await each.close()


def other(connections: SessionPool) -> Storage:
    return Storage(connections, patience=timedelta(seconds=10))


async def test_what_changes_between_look_and_lock(
    storage: Storage, tables: Tables, paused: Callable[[str], Paused]
) -> None:
    """What a round found is looked at again behind the lock: of four only one still is as it was."""
    for process_id in ("same", "again", "repaired", "waiting", "gone"):
        await break_process(storage, process_id)
    await make(storage)
    connections = paused("choose_bulk")
    running = asyncio.create_task(other(connections).run_bulk(now=LATER))
    await connections.there.wait()
    await storage.simple_repair([repair("again"), repair("repaired")], now=T1 + SECOND)
    await save(storage, await hold(storage, request("again"), now=T1 + SECOND), fail(), now=T1 + SECOND)
    await wait(storage, repair("waiting", worker_id=None), now=T1 + SECOND)
    await storage.remove(NS, "gone")
    connections.go_on.set()
    done = await running
    assert done is not None
    assert counts(done.bulk) == {"looked_at": 5, "passed_by": 4, "begun": 1, "repaired": 1}
    wanted = {"same": "running", "again": "error", "repaired": "running", "waiting": "error"}
    assert statuses(tables) == wanted
    assert len(tables.tasks("again")) == 4


async def test_a_repair_that_holds_the_lock(storage: Storage, dsn: str, tables: Tables) -> None:
    """A round that waits for a process sees, behind its lock, that it broke again."""
    await break_process(storage, "p1")
    await make(storage)
    connections = SessionPool(dsn, limit=1)
    with psycopg.connect(dsn) as own:
        own.execute("SET search_path = progressor")
        own.execute("SELECT FROM processes FOR NO KEY UPDATE")
        running = asyncio.create_task(other(connections).run_bulk(now=LATER))
        await eventually(tables.waiting, "it waits for the lock")
        own.execute("UPDATE processes SET status_changed_at = %s", [T1 + MICROSECOND])
        own.commit()
        done = await running
    await connections.close()
    assert done is not None
    assert counts(done.bulk) == {"looked_at": 1, "passed_by": 1}
    assert statuses(tables) == {"p1": "error"}


async def test_two_runners_share_no_bulk(
    storage: Storage, tables: Tables, paused: Callable[[str], Paused]
) -> None:
    """While one is in its round another finds nothing; of two bulks it takes the other one."""
    await break_process(storage, "p1")
    first = await make(storage)
    connections = paused("settle_bulk")
    running = asyncio.create_task(other(connections).run_bulk(now=LATER))
    await connections.there.wait()
    assert await storage.run_bulk(now=LATER) is None
    second = await make(storage, "second", detail_like="none")
    done = await storage.run_bulk(now=LATER)
    assert done is not None
    assert done.bulk.bulk_id == second.bulk_id
    connections.go_on.set()
    mine = await running
    assert mine is not None
    assert (mine.bulk.bulk_id, counts(mine.bulk)["repaired"]) == (first.bulk_id, 1)


@pytest.mark.parametrize("before", ["settle_bulk", "choose_bulk", "note_bulk", "commit"])
@pytest.mark.parametrize("simple", [True, False], ids=["simple", "handler"])
async def test_a_runner_that_dies(
    storage: Storage, tables: Tables, paused: Callable[[str], Paused], before: str, simple: bool
) -> None:
    """Wherever a runner is killed, nothing of its round is done, and another one does it, once."""
    for process_id in ("a", "b"):
        await break_process(storage, process_id)
    await make(storage, simple=simple)
    everything = tables.everything()
    connections = paused(before)
    running = asyncio.create_task(other(connections).run_bulk(now=LATER))
    await connections.there.wait()
    # Its connections are dropped with it.
    running.cancel()
    await asyncio.wait((running,))
    await connections.close()
    await eventually(lambda: not tables.in_transaction(), "it is gone")
    assert tables.everything() == everything
    done = await one_round(storage)
    assert done.bulk.begun == 2
    assert [kind for kind, _ in tables.outline("a")].count("repair") == 1


async def test_a_lost_answer(dsn: str, storage: Storage, tables: Tables) -> None:
    """A round that was committed, and tried again because nobody heard of it, repairs nothing twice."""
    for n in range(6):
        await break_process(storage, f"p{n}")
    await make(storage)
    connections = LossyConnections(dsn, limit=1)
    connections.late = 1
    lossy = other(connections)
    await lossy.run_bulk(most=2, now=LATER)
    await connections.close()
    bulk = await run(storage, now=LATER + timedelta(minutes=1))
    assert counts(bulk) == {"looked_at": 6, "begun": 6, "repaired": 6}
    repairs = tables.execute("SELECT process_no FROM tasks WHERE task_type = 'repair'")
    assert len(repairs) == len({row["process_no"] for row in repairs}) == 6


async def test_a_cursor_that_was_set_back(storage: Storage, tables: Tables) -> None:
    """The key of bulk and process holds even if the bulk came by a second time: failed repairs stay so."""
    await break_process(storage, "p1")
    await make(storage, simple=False)
    await one_round(storage)
    (step,) = await claim_calls(storage)
    await save(storage, step, fail_repair())
    tables.execute("UPDATE bulks SET cursor_at = NULL, cursor_no = 0, at_end = FALSE")
    bulk = await run(storage, now=LATER + SECOND)
    assert (bulk.begun, bulk.failed, bulk.passed_by) == (1, 1, 1)
    assert [kind for kind, _ in tables.outline()].count("repair") == 1


async def test_the_pace_is_kept(storage: Storage) -> None:
    """At two a second a round begins what is due since, no more than a second's worth, whoever runs it."""
    for n in range(12):
        await break_process(storage, f"p{n}")
    await make(storage, pace=SECOND / 2)
    began = []
    for at in (0.0, 0.5, 1.0, 2.0, 60.0):
        assert await storage.next_bulk(now=T1 + timedelta(seconds=at)) <= timedelta()
        done = await one_round(storage, T1 + timedelta(seconds=at))
        began.append(done.new["begun"])
        due_in = await storage.next_bulk(now=T1 + timedelta(seconds=at))
        assert due_in is not None
        assert due_in > timedelta()
        assert await storage.run_bulk(now=T1 + timedelta(seconds=at)) is None
    assert began == [1, 1, 1, 2, 3]


async def test_a_slow_one_soon_sees_the_end_of_its_repairs(storage: Storage) -> None:
    """It looks every few seconds, and begins nothing before its pace lets it."""
    hour = timedelta(hours=1)
    await break_process(storage, "p1")
    await break_process(storage, "p2")
    await make(storage, simple=False, pace=hour)
    assert (await one_round(storage, T1)).new["begun"] == 1
    (step,) = await claim_calls(storage)
    soon = T1 + 5 * SECOND
    done = await one_round(storage, soon)
    assert (done.bulk.under_way, any(done.new.values())) == (1, False)
    await save(storage, step, resume())
    done = await one_round(storage, soon + 5 * SECOND)
    assert (done.new["repaired"], done.bulk.begun) == (1, 1)
    # Nothing is under way.
    assert await storage.next_bulk(now=T1) == hour
    assert (await one_round(storage, T1 + hour)).new["begun"] == 1
    (step,) = await claim_calls(storage)
    await save(storage, step, resume())
    last = T1 + hour + 5 * SECOND
    done = await one_round(storage, last)
    assert (done.bulk.status, done.bulk.ended_at) == (BulkStatus.FINISHED, last)
    assert counts(done.bulk) == {"looked_at": 2, "begun": 2, "repaired": 2}


async def test_no_more_than_so_many_under_way(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where workers are slow or away, a bulk waits with the rest."""
    monkeypatch.setattr(machine, "MOST_UNDER_WAY", 2)
    for n in range(5):
        await break_process(storage, f"p{n}")
    await make(storage, simple=False)
    assert [(await one_round(storage, LATER + n * SECOND)).new["begun"] for n in range(3)] == [2, 0, 0]
    step, _ = await claim_calls(storage)
    await save(storage, step, resume())
    done = await one_round(storage, LATER + 5 * SECOND)
    assert (done.new["repaired"], done.bulk.under_way) == (1, 1)
    assert (await one_round(storage, LATER + 6 * SECOND)).new["begun"] == 1


async def test_stopping(storage: Storage, tables: Tables) -> None:
    """A stopped bulk begins nothing more; it ends when it has seen the end of what it began."""
    for n in range(3):
        await break_process(storage, f"p{n}")
    made = await make(storage, simple=False)
    await one_round(storage, most=1)
    await storage.stop_bulk(made.bulk_id)
    bulk = await storage.bulk(made.bulk_id)
    assert bulk is not None
    assert (bulk.status, bulk.left, bulk.ended_at) == (BulkStatus.STOPPING, 0, None)
    assert (await one_round(storage, LATER + SECOND)).new["begun"] == 0
    (step,) = await claim_calls(storage)
    await save(storage, step, resume())
    done = await one_round(storage, LATER + 2 * SECOND)
    assert (done.bulk.status, done.bulk.ended_at) == (BulkStatus.STOPPED, LATER + 2 * SECOND)
    assert counts(done.bulk) == {"looked_at": 1, "begun": 1, "repaired": 1}
    await storage.stop_bulk(made.bulk_id)
    assert statuses(tables) == {"p0": "running", "p1": "error", "p2": "error"}


async def test_stopping_is_looked_after_at_once(storage: Storage) -> None:
    """Whenever its next round was due: what it began may have ended since."""
    await break_process(storage)
    made = await make(storage, simple=False, pace=timedelta(hours=1))
    await one_round(storage, T1)
    (step,) = await claim_calls(storage)
    await save(storage, step, resume())
    await storage.stop_bulk(made.bulk_id, now=T1 + SECOND)
    done = await one_round(storage, T1 + SECOND)
    assert (done.bulk.status, done.bulk.ended_at) == (BulkStatus.STOPPED, T1 + SECOND)


async def test_stopping_with_nothing_under_way(storage: Storage) -> None:
    """It has ended at once, and no runner is needed."""
    await break_process(storage)
    made = await make(storage)
    await storage.stop_bulk(made.bulk_id, now=LATER)
    bulk = await storage.bulk(made.bulk_id)
    assert bulk is not None
    assert (bulk.status, bulk.ended_at) == (BulkStatus.STOPPED, LATER)
    assert await storage.run_bulk(now=LATER) is None


async def test_stopping_waits_for_a_round(
    storage: Storage, tables: Tables, paused: Callable[[str], Paused]
) -> None:
    """Nothing is begun after it returned: a round under way ends first, and is counted."""
    await break_process(storage)
    made = await make(storage, simple=False)
    connections = paused("note_bulk")
    running = asyncio.create_task(other(connections).run_bulk(now=LATER))
    await connections.there.wait()
    stopping = asyncio.create_task(storage.stop_bulk(made.bulk_id))
    await eventually(tables.waiting, "it waits for the lock")
    connections.go_on.set()
    await running
    await stopping
    bulk = await storage.bulk(made.bulk_id)
    assert bulk is not None
    assert (bulk.status, bulk.under_way) == (BulkStatus.STOPPING, 1)


async def test_one_bulk_of_a_key(storage: Storage) -> None:
    """Made again under its key it is the same bulk; another one's key is told."""
    made = await make(storage)
    assert await make(storage, now=LATER) == made
    item = NewBulk(NS, None, None, True, None, b"hash", "key", b"another", SECOND)
    again = await storage.make_bulk(item)
    assert (again.is_another, again.bulk) == (True, made)
    assert await storage.bulks(limit=10) == [made]


async def test_many_that_do_not_match(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round looks at so many, and the next goes on at once, where that one ended."""
    monkeypatch.setattr(bulks_module, "_LOOKS", 3)
    for n in range(8):
        await start(storage, f"p{n}")
        detail = "wanted" if n in (4, 7) else "other"
        await save(storage, await hold(storage, request(f"p{n}")), fail(detail))
    await make(storage, detail_like="wanted")
    looked = []
    now = LATER
    while True:
        done = await one_round(storage, now)
        looked.append(done.new["looked_at"])
        if done.bulk.status.is_final:
            break
        due_in = await storage.next_bulk(now=now)
        assert due_in is not None
        assert due_in <= SECOND
        now += max(due_in, timedelta())
    assert looked == [3, 3, 2]
    assert counts(done.bulk) == {"looked_at": 8, "begun": 2, "repaired": 2}


async def test_one_that_cannot_be_repaired(storage: Storage, tables: Tables) -> None:
    """It is passed by, with the reason; the others are repaired."""
    for process_id in ("a", "bad", "c"):
        await break_process(storage, process_id)
    tables.execute(
        "ALTER TABLE tasks ADD CONSTRAINT test CHECK (process_no <> 2 OR task_type <> 'repair') NOT VALID"
    )
    number = tables.process("bad")
    assert number is not None
    assert number["process_no"] == 2
    await make(storage)
    bulk = await run(storage)
    assert counts(bulk) == {"looked_at": 3, "passed_by": 1, "begun": 2, "repaired": 2}
    assert bulk.last_error is not None
    assert bulk.last_error.startswith("bad: it cannot be repaired: PostgreSQL refused a value")
    assert statuses(tables) == {"a": "running", "bad": "error", "c": "running"}
    tables.execute("ALTER TABLE tasks DROP CONSTRAINT test")


async def test_a_namespace_that_is_gone(storage: Storage, tables: Tables) -> None:
    """There is nothing to repair any more: the bulk ends."""
    await make(storage, namespace="nobody.knows")
    assert counts(await run(storage)) == {}


async def test_the_doctor_adds_up(storage: Storage, dsn: str, tables: Tables) -> None:
    """A repair that a bulk lost out of sight is a finding."""
    await break_process(storage)
    await make(storage, simple=False)
    await one_round(storage)

    def found() -> list[str]:
        report = examine(dsn, quick=True)
        (check,) = [each for each in report.invariants if each.name == "bulks_add_up"]
        return [finding.found for finding in check.findings]

    assert found() == []
    lost = tables.execute("DELETE FROM bulk_repairs RETURNING *")
    assert found() == ["bulk 1 (running) began 1 repairs, 0 have ended and 0 are looked for"]
    tables.execute("INSERT INTO bulk_repairs VALUES (%s, %s, %s, %s)", *lost[0].values())
    tables.execute("INSERT INTO bulk_repairs VALUES (7, 1, 1)")
    assert found() == ["1 repairs are looked for by bulk 7, which is not there"]
    tables.execute("DELETE FROM bulk_repairs WHERE bulk_id = 7")
