"""The outbox: messages are appended with their step, and become one task each, whoever delivers them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from progressor.messages.message import Message, message_key, request_hash
from progressor.model import Decision
from progressor.storage.letters import together
from progressor.storage.operations import Storage
from progressor.storage.outbox import Delivery, Outbox, RefusedMessage
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.values import LostLease, Saved
from tests.support import (
    NS,
    SECOND,
    T0,
    Held,
    LossyConnections,
    Tables,
    break_process,
    check_invariants,
    claim_calls,
    claim_timers,
    hold,
    number,
    removed,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
)

DAY = timedelta(days=1)


def notice(process_id: str = "b", *, key: str | None = None, **fields: Any) -> Message:
    """A message as a worker hands it over: with its key and the hash of its request."""
    values = {"namespace": NS, "process_id": process_id, "name": "post", "args": b"1", **fields}
    hashed = request_hash("notify", values["name"], values["args"])
    key = key or message_key(1, 0, number())
    return Message(**values, idempotency_key=key, request_hash=hashed)


def begin(process_id: str = "b", *, key: str | None = None, **fields: Any) -> Message:
    """A message that starts a process."""
    hashed = request_hash("init", None, b"1")
    key = key or message_key(1, 0, number())
    values = {"namespace": NS, "process_id": process_id, "args": b"1", **fields}
    return Message(**values, kind="start", idempotency_key=key, request_hash=hashed)


def sending(*messages: Message) -> Decision:
    return resume(messages=messages)


async def send(storage: Storage, *messages: Message, process_id: str = "a") -> Held:
    """Have a step of a process send these."""
    step = await hold(storage, request(process_id))
    await save(storage, step, sending(*messages))
    return step


def waiting(tables: Tables) -> list[tuple[Any, ...]]:
    rows = tables.execute("SELECT process_id, name, n FROM outbox ORDER BY process_no, task_id, n")
    return [(row["process_id"], row["name"], row["n"]) for row in rows]


def received(tables: Tables, process_id: str = "b") -> list[tuple[Any, ...]]:
    """The requests that a process has got, but for its start by the test."""
    return [(row["task_type"], row["name"], bytes(row["args"] or b"")) for row in tables.tasks(process_id)]


@pytest.fixture
async def connections(dsn: str) -> AsyncIterator[LossyConnections]:
    made = LossyConnections(dsn, limit=4)
    yield made
    await made.close()


@pytest.fixture
def outbox(connections: LossyConnections) -> Outbox:
    return Outbox(connections, patience=timedelta(seconds=10))


async def test_a_notice_becomes_one_task(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """It is appended with the step, leaves with its task, and nobody waits for its answer."""
    await start(storage, "a")
    await start(storage, "b")
    message = notice()
    step = await send(storage, message)
    assert waiting(tables) == [("b", "post", 0)]
    assert (tables.execute("SELECT * FROM outbox")[0]["task_id"]) == step.task.task_id
    done = await outbox.deliver(now=T0)
    assert done == Delivery(done.delivered, (), (NS,))
    assert done.delivered == {NS: 1}
    assert waiting(tables) == []
    got = tables.tasks("b")[-1]
    assert (got["task_type"], got["name"], got["status"]) == ("notify", "post", "waiting")
    assert (got["idempotency_key"], got["reply_to"]) == (message.idempotency_key, None)
    (claimed,) = await claim_calls(storage)
    assert (claimed.task.args, claimed.task.request_hash) == (b"1", message.request_hash)
    await save(storage, claimed, resume())


async def test_a_start_makes_a_process(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """With its metadata, and notices of the same step behind it."""
    await start(storage, "a")
    await send(storage, begin(metadata={"tenant": 7}), notice())
    assert (await outbox.deliver(now=T0)).delivered == {NS: 2}
    assert (tables.process("b") or {})["metadata"] == {"tenant": 7}
    assert received(tables) == [("init", None, b"1"), ("notify", "post", b"1")]


async def test_a_lost_lease_sends_nothing(storage: Storage, tables: Tables) -> None:
    """A step that lost its lease appends no message; nor does one that was saved before."""
    await start(storage, "a")
    step = await hold(storage, request("a"))
    lost = Held(step.task._replace(lease=step.task.lease + 5), step.process)
    (saved,) = await storage.save_result([lost.step(sending(notice()))], now=T0)
    assert saved == LostLease()
    assert waiting(tables) == []
    await save(storage, step, resume())
    (saved,) = await storage.save_result([step.step(sending(notice()))], now=T0)
    assert saved == LostLease()
    assert waiting(tables) == []


@pytest.mark.parametrize("ends", ["resume", "timer", "remove"])
async def test_however_the_step_ends(
    storage: Storage, outbox: Outbox, tables: Tables, dsn: str, ends: str
) -> None:
    """A timer that is set or a process that removes itself changes nothing for its messages."""
    await start(storage, "a", set_timer(SECOND))
    await start(storage, "b")
    decision = {"resume": resume, "timer": set_timer, "remove": removed}[ends]
    options: Any = {"after": SECOND} if ends == "timer" else {}
    (timer,) = await claim_timers(storage, now=T0 + SECOND)
    await save(storage, timer, decision(**options, messages=(notice(), notice())), now=T0 + SECOND)
    assert len(waiting(tables)) == 2
    check_invariants(dsn)
    await outbox.deliver(now=T0 + SECOND)
    assert received(tables)[1:] == [("notify", "post", b"1")] * 2


async def test_a_removed_sender(storage: Storage, outbox: Outbox, tables: Tables, dsn: str) -> None:
    """Its messages were committed: they are delivered all the same."""
    await start(storage, "a")
    await start(storage, "b")
    await send(storage, notice())
    await storage.remove(NS, "a")
    check_invariants(dsn)
    await outbox.deliver(now=T0)
    assert received(tables)[1:] == [("notify", "post", b"1")]


async def test_a_save_that_is_repeated_sends_once(
    storage: Storage, connections: LossyConnections, tables: Tables
) -> None:
    """The answer of the first try was lost, or its connection before it got there."""
    await start(storage, "a")
    lossy = Storage(connections, patience=timedelta(seconds=10))
    for kind in ("late", "early"):
        step = await hold(storage, request("a"))
        setattr(connections, kind, 1)
        (saved,) = await lossy.save_result([step.step(sending(notice(), notice()))], now=T0)
        assert isinstance(saved, Saved)
    assert len(waiting(tables)) == 4


async def test_a_delivery_that_is_repeated_delivers_once(
    storage: Storage, outbox: Outbox, connections: LossyConnections, tables: Tables
) -> None:
    """The transaction was committed and its answer lost: its targets are woken, and get nothing twice."""
    await start(storage, "a")
    await start(storage, "b")
    await send(storage, notice(), begin("c"))
    connections.late = 1
    done = await outbox.deliver(now=T0)
    assert done.namespaces == (NS,)
    assert received(tables)[1:] == [("notify", "post", b"1")]
    assert received(tables, "c") == [("init", None, b"1")]
    assert waiting(tables) == []


async def test_the_returning_worker_and_the_sweeper(storage: Storage, dsn: str, tables: Tables) -> None:
    """Save committed, its answer lost, a sweeper delivers; then the worker does: there is one task."""
    await start(storage, "a")
    await start(storage, "b")
    lossy = LossyConnections(dsn, limit=2)
    worker, courier = Storage(lossy, patience=10 * SECOND), Outbox(lossy, patience=10 * SECOND)
    sweeps = SessionPool(dsn, limit=2)
    sweeper = Outbox(sweeps, patience=10 * SECOND)
    step = await hold(storage, request("a"))
    swept: list[Delivery] = []

    async def meanwhile() -> None:
        swept.append(await sweeper.deliver(now=T0))

    lossy.late, lossy.meanwhile = 1, meanwhile
    (saved,) = await worker.save_result([step.step(sending(notice()))], now=T0)
    assert isinstance(saved, Saved)
    assert swept[0].delivered == {NS: 1}
    assert (await courier.deliver(now=T0)).delivered == {}
    assert received(tables)[1:] == [("notify", "post", b"1")]
    await lossy.close()
    await sweeps.close()


async def test_couriers_at_once(storage: Storage, dsn: str, tables: Tables) -> None:
    """Many of them, while more is sent: each message becomes one task, in the order of its sender."""
    for name in ("a1", "a2", "a3", "b1", "b2"):
        await start(storage, name)
    sent: dict[tuple[str, str], list[bytes]] = {}

    async def act(sender: str) -> None:
        for place in range(15):
            messages = []
            for target in ("b1", "b2"):
                for each in range(3):
                    text = f"{sender} {place} {each}".encode()
                    sent.setdefault((sender, target), []).append(text)
                    messages.append(notice(target, args=text))
            await send(storage, *messages, process_id=sender)

    pools = [SessionPool(dsn, limit=2) for _ in range(4)]
    senders = asyncio.gather(*(act(sender) for sender in ("a1", "a2", "a3")))

    async def carry(pool: SessionPool) -> None:
        outbox = Outbox(pool, patience=10 * SECOND)
        while not senders.done() or (await outbox.waiting(now=T0)).messages:
            await outbox.deliver(limit=7, now=T0)

    await asyncio.gather(senders, *map(carry, pools))
    for (sender, target), texts in sent.items():
        got = [text for kind, _, text in received(tables, target) if kind == "notify"]
        assert [text for text in got if text.startswith(sender.encode())] == texts
    for pool in pools:
        await pool.close()


async def test_what_another_courier_holds(
    storage: Storage, outbox: Outbox, dsn: str, tables: Tables
) -> None:
    """It is skipped with all that comes behind it for its target; others are delivered."""
    for name in ("a", "b", "c"):
        await start(storage, name)
    await send(storage, notice("b"), notice("c"))
    await send(storage, notice("b"))
    pool = SessionPool(dsn, limit=1)
    async with pool.acquire() as session:
        held = await session.begin({"take_messages": {"limit": 1, "bytes": 100, "now": T0}})
        assert [row["process_id"] for row in held["take_messages"]] == ["b"]
        assert (await outbox.deliver(now=T0)).delivered == {NS: 1}
        assert waiting(tables) == [("b", "post", 0), ("b", "post", 0)]
        await session.roll_back()
    assert (await outbox.deliver(now=T0)).delivered == {NS: 2}
    assert len(received(tables, "b")) == 3
    await pool.close()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (notice("nobody"), "not_found"),
        (notice("broken"), "broken"),
        (begin("taken"), "exists"),
        (notice("keyed", key="k", args=b"2"), "conflict"),
        (begin("keyed", key="init-k"), "conflict"),
    ],
)
async def test_refusals(
    storage: Storage, outbox: Outbox, tables: Tables, message: Message, reason: str
) -> None:
    """It is ended and returned, with its sender, and holds up nothing that comes behind it."""
    await start(storage, "a")
    await start(storage, "taken")
    await start(storage, "keyed", key="init-k")
    await break_process(storage, "broken")
    await send(storage, notice("keyed", key="k"))
    await outbox.deliver(now=T0)
    before = len(received(tables, "keyed"))
    step = await send(storage, message, notice("taken"))
    done = await outbox.deliver(now=T0)
    (refused,) = done.refused
    assert refused.reason == reason
    assert (refused.sender_namespace, refused.sender_id, refused.task_id) == (NS, "a", step.task.task_id)
    assert (refused.namespace, refused.process_id) == (NS, message.process_id)
    assert done.delivered == {NS: 1}
    assert waiting(tables) == []
    assert len(received(tables, "keyed")) == before


async def test_a_notice_to_a_broken_process(
    storage: Storage, outbox: Outbox, tables: Tables, dsn: str
) -> None:
    """It stands in the trace of its target, cancelled, in the order in which it was sent."""
    await start(storage, "a")
    broke = await break_process(storage, "b")
    sent = [notice(args=text) for text in (b"1", b"2", b"3")]
    await send(storage, *sent)
    assert [each.reason for each in (await outbox.deliver(now=T0)).refused] == ["broken"] * 3
    assert waiting(tables) == []
    process, (*_, first, second, third) = tables.process("b") or {}, tables.tasks("b")
    for kept, message in zip((first, second, third), sent, strict=True):
        assert (kept["task_type"], kept["name"], bytes(kept["args"])) == ("notify", "post", message.args)
        assert (kept["status"], kept["error"], kept["finished_time"]) == (
            "cancelled",
            process["detail"],
            T0,
        )
        assert (kept["idempotency_key"], kept["request_hash"]) == (
            message.idempotency_key,
            message.request_hash,
        )
    assert process["corrupted_by"] == broke
    check_invariants(dsn)


async def test_a_notice_during_a_repair(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """It waits for the end of the repair, however old it is, and is delivered then."""
    await start(storage, "a")
    await break_process(storage, "b")
    step = await hold(storage, repair("b"))
    await send(storage, notice())
    done = await outbox.deliver(now=T0 + 2 * DAY)
    assert (done.delivered, done.refused) == ({}, ())
    assert tables.tasks("b")[-1]["status"] == "running"
    await save(storage, step, resume())
    assert (await outbox.deliver(now=T0 + 2 * DAY + SECOND)).delivered == {NS: 1}
    assert received(tables)[-1] == ("notify", "post", b"1")
    assert waiting(tables) == []


async def test_the_same_key_twice(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """A key that its sender gives is for one task, whichever steps send it; no such message is refused."""
    await start(storage, "a")
    await start(storage, "b")
    for _ in range(2):
        await send(storage, notice(key="k"), begin("c", key="k"), notice(key="k"))
        while (await outbox.deliver(now=T0)).more:
            pass
    assert received(tables)[1:] == [("notify", "post", b"1")]
    assert received(tables, "c") == [("init", None, b"1")]
    assert waiting(tables) == []


async def test_a_start_whose_process_has_ended(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """Its key has an answer of that life: the message counts as delivered, and starts no other one."""
    await start(storage, "a")
    await send(storage, begin("c", key="k"))
    await outbox.deliver(now=T0)
    (first,) = await claim_calls(storage)
    await save(storage, first, removed())
    await send(storage, begin("c", key="k"))
    done = await outbox.deliver(now=T0)
    assert (done.delivered, done.refused) == ({NS: 1}, ())
    assert waiting(tables) == []
    assert tables.process("c") is None


async def test_a_namespace_that_nobody_serves_yet(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """It is tried again, ever more seldom, and holds up other targets for no time."""
    await start(storage, "a")
    await start(storage, "b")
    await send(storage, begin(namespace="later"), notice(namespace="later"), notice())
    assert (await outbox.deliver(now=T0)).delivered == {NS: 1}
    assert (await outbox.waiting(now=T0)).due_in == SECOND
    assert (await outbox.deliver(now=T0)).delivered == {}
    await outbox.deliver(now=T0 + SECOND)
    assert (await outbox.waiting(now=T0 + SECOND)).due_in == 2 * SECOND
    tables.set_namespace("later")
    now = T0 + 3 * SECOND
    assert (await outbox.deliver(now=now)).delivered == {"later": 2}
    assert received(tables)[1:3] == [("notify", "post", b"1"), ("init", None, b"1")]


async def test_a_namespace_that_nobody_ever_serves(
    storage: Storage, outbox: Outbox, tables: Tables
) -> None:
    """After a day the message is ended, as refused."""
    await start(storage, "a")
    await send(storage, notice(namespace="never"))
    # While nobody delivers, however long that is, nothing is tried.
    (refused,), now = await tried(outbox, T0 + 9 * DAY)
    assert refused.reason == "no_namespace"
    assert 10 * DAY <= now - T0 < 10 * DAY + timedelta(minutes=10)
    assert waiting(tables) == []


async def tried(outbox: Outbox, now: datetime) -> tuple[tuple[RefusedMessage, ...], datetime]:
    """Deliver whenever something is due, from then on, until a message is ended; also when that is."""
    while not (refused := (await outbox.deliver(now=now)).refused):
        due_in = (await outbox.waiting(now=now)).due_in
        assert due_in is not None
        now += due_in
    return refused, now


async def test_what_comes_behind_one_that_is_put_off(
    storage: Storage, outbox: Outbox, tables: Tables
) -> None:
    """It waits, also if its namespace is served meanwhile, or the order would change."""
    await start(storage, "a")
    await send(storage, notice("x", namespace="later", args=b"1"))
    await outbox.deliver(now=T0)
    tables.set_namespace("later")
    await start(storage, "x", namespace="later")
    await send(storage, notice("x", namespace="later", args=b"2"))
    assert (await outbox.deliver(now=T0)).delivered == {}
    await outbox.deliver(now=T0 + SECOND)
    assert [text for _, _, text in received(tables, "x")][1:] == [b"1", b"2"]


def before_started(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, change: Callable[[], Awaitable[None]]
) -> None:
    """Have this happen once a courier has committed, before it looks at starts that made nothing."""
    transact = outbox._transact

    async def changed(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "started":
            await change()
        return await transact(name, *args, **kwargs)

    monkeypatch.setattr(outbox, "_transact", changed)


async def test_what_comes_behind_a_start_that_is_put_off(
    storage: Storage, outbox: Outbox, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its namespace is served just now: the notice that the start makes a target for waits for that."""

    async def serve() -> None:
        tables.set_namespace("later")

    await start(storage, "a")
    await send(storage, begin("x", namespace="later"), notice("x", namespace="later"))
    with monkeypatch.context() as patch:
        before_started(outbox, patch, serve)
        done = await outbox.deliver(now=T0)
    assert (done.delivered, done.refused) == ({}, ())
    assert (await outbox.deliver(now=T0 + SECOND)).delivered == {"later": 2}
    assert [kind for kind, _, _ in received(tables, "x")] == ["init", "notify"]


async def test_a_start_whose_target_goes(
    storage: Storage, outbox: Outbox, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent behind it has reached the process that was there: it is refused, and not made later."""

    async def remove() -> None:
        await storage.remove(NS, "b")

    await start(storage, "a")
    await start(storage, "b")
    await send(storage, begin(), notice())
    before_started(outbox, monkeypatch, remove)
    done = await outbox.deliver(now=T0)
    assert done.delivered == {NS: 1}
    assert [each.reason for each in done.refused] == ["exists"]
    assert waiting(tables) == []


async def test_a_removed_target(storage: Storage, outbox: Outbox) -> None:
    """It is refused as one that never was."""
    await start(storage, "a")
    await start(storage, "b")
    await send(storage, notice())
    await storage.remove(NS, "b")
    assert [each.reason for each in (await outbox.deliver(now=T0)).refused] == ["not_found"]


async def test_poison(
    storage: Storage, outbox: Outbox, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that PostgreSQL refuses is put off alone; the others of its batch are delivered."""
    await start(storage, "a")
    for name in ("b", "c", "d"):
        await start(storage, name)
    await send(storage, notice("b"), notice("c", name="poison"), notice("d"))
    tables.execute("ALTER TABLE tasks ADD CHECK (name <> 'poison')")
    done = await outbox.deliver(now=T0)
    assert (done.delivered, done.refused) == ({NS: 2}, ())
    assert waiting(tables) == [("c", "poison", 1)]
    assert (await outbox.waiting(now=T0)).due_in == SECOND
    (refused,), _ = await tried(outbox, T0 + SECOND)
    assert "constraint" in refused.reason
    assert waiting(tables) == []


async def test_poison_beside_another_courier(
    storage: Storage, outbox: Outbox, dsn: str, tables: Tables
) -> None:
    """What another courier holds is not taken for the message that PostgreSQL refuses."""
    for name in ("a", "b", "c", "d"):
        await start(storage, name)
    await send(storage, notice("c"))
    await send(storage, notice("d", name="poison"), process_id="b")
    tables.execute("ALTER TABLE tasks ADD CHECK (name <> 'poison')")
    tables.execute("UPDATE outbox SET attempts = 1000 WHERE name = 'post'")
    pool = SessionPool(dsn, limit=1)
    async with pool.acquire() as session:
        held = await session.begin({"take_messages": {"limit": 1, "bytes": 100, "now": T0}})
        assert [row["process_id"] for row in held["take_messages"]] == ["c"]
        assert await outbox.deliver(now=T0) == Delivery(Counter(), more=False)
        await session.roll_back()
    rows = tables.execute("SELECT name, due > %s AS is_put_off FROM outbox ORDER BY name", T0)
    assert [tuple(row.values()) for row in rows] == [("poison", True), ("post", False)]
    await pool.close()


async def test_many_to_a_target_that_is_locked(
    storage: Storage, outbox: Outbox, tables: Tables, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first waits for the lock, the others are put off at once, and one to another target arrives."""
    for name in ("b", "c"):
        await start(storage, name, resume())
    for sender in ("a1", "a2", "a3"):
        await start(storage, sender, resume())
        await send(storage, notice("b"), process_id=sender)
    await start(storage, "a4", resume())
    await send(storage, notice("c"), process_id="a4")
    with psycopg.connect(dsn) as other:
        other.execute("SELECT FROM progressor.processes WHERE process_id = 'b' FOR UPDATE")
        assert (await outbox.deliver(now=T0)).delivered == Counter({NS: 1})
    reasons = [vars(each)["reason"] for each in caplog.records if "cannot be delivered" in each.message]
    assert len(reasons) == 3
    assert "lock timeout" in reasons[0]
    assert reasons[1:] == ["Blocked: its target was locked just now"] * 2
    assert (await outbox.deliver(now=T0 + SECOND)).delivered == Counter({NS: 3})


async def test_a_damaged_message(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """Its arguments cannot be read any more: it is put off, and the others are delivered."""
    await start(storage, "a")
    await start(storage, "b")
    await start(storage, "c")
    with tables.damaged("outbox"):
        await send(storage, notice("b", args=bytes(range(256)) * 40_000), notice("c"))
    assert (await outbox.deliver(now=T0)).delivered == {NS: 1}
    assert waiting(tables) == [("b", "post", 0)]
    (refused,), _ = await tried(outbox, T0 + SECOND)
    assert refused.process_id == "b"


async def test_a_timer_and_the_calls_before_it(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """A timer's number is older than those of the calls that ran before it: what it sends comes last."""
    await start(storage, "a", set_timer(SECOND))
    await start(storage, "b")
    await start(storage, "c")
    await send(storage, notice(args=b"1"), notice("c", args=b"1"), notice(args=b"2"))
    (timer,) = await claim_timers(storage, now=T0 + 2 * SECOND)
    await save(storage, timer, sending(notice(args=b"3"), notice("c", args=b"2")), now=T0 + 2 * SECOND)
    while (await outbox.deliver(limit=2, now=T0 + 2 * SECOND)).more:
        pass
    assert [text for _, _, text in received(tables)[1:]] == [b"1", b"2", b"3"]
    assert [text for _, _, text in received(tables, "c")[1:]] == [b"1", b"2"]


async def test_a_start_by_a_call_and_a_notice_by_a_timer(
    storage: Storage, outbox: Outbox, tables: Tables
) -> None:
    """The notice finds the process that the call before it started."""
    await start(storage, "a", set_timer(SECOND))
    await send(storage, begin("c"))
    (timer,) = await claim_timers(storage, now=T0 + 2 * SECOND)
    await save(storage, timer, sending(notice("c")), now=T0 + 2 * SECOND)
    while (done := await outbox.deliver(now=T0 + 2 * SECOND)).more:
        assert done.refused == ()
    assert done.refused == ()
    assert received(tables, "c") == [("init", None, b"1"), ("notify", "post", b"1")]


async def test_a_stranger_of_the_same_numbers(
    storage: Storage, outbox: Outbox, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promoted server may draw them again: only the message that was refused is ended."""
    await start(storage, "a")
    await send(storage, notice("nobody"))
    settle = outbox._left

    async def settled(*args: Any) -> Any:
        tables.execute("UPDATE outbox SET idempotency_key = 'another'")
        return await settle(*args)

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "_left", settled)
        assert (await outbox.deliver(now=T0)).refused == ()
    assert waiting(tables) == [("nobody", "post", 0)]
    assert [each.reason for each in (await outbox.deliver(now=T0)).refused] == ["not_found"]
    assert waiting(tables) == []


async def test_large_messages_travel_apart(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """A flight takes no more bytes than fit, and one message at least."""
    await start(storage, "a")
    await start(storage, "b")
    large = b"x" * (20 << 20)
    await send(storage, notice(args=large), notice(args=large), notice(args=b"2"))
    deliveries = []
    while waiting(tables):
        deliveries.append((await outbox.deliver(now=T0)).delivered[NS])
    assert deliveries == [1, 2]
    assert [len(text) for _, _, text in received(tables)[1:]] == [len(large), len(large), 1]


async def test_many_go_in_several_flights(storage: Storage, outbox: Outbox, tables: Tables) -> None:
    """Each flight says whether there may be more."""
    await start(storage, "a")
    await start(storage, "b")
    await send(storage, *(notice(args=str(place).encode()) for place in range(10)))
    flights = [await outbox.deliver(limit=4, now=T0) for _ in range(3)]
    assert [(each.delivered[NS], each.more) for each in flights] == [(4, True), (4, True), (2, False)]
    assert [text for _, _, text in received(tables)[1:]] == [str(n).encode() for n in range(10)]


async def test_steps_without_messages_send_no_further_statement(storage: Storage, sent: set[str]) -> None:
    """Neither a step nor a fused request knows of the outbox."""
    await start(storage, "a")
    await save(storage, await hold(storage, request("a")), resume())
    assert "send_messages" not in sent
    await save(storage, await hold(storage, request("a")), sending(notice("a")))
    assert "send_messages" in sent


@pytest.mark.parametrize("nth", [1, 2])
async def test_a_courier_that_dies(
    storage: Storage, dsn: str, outbox: Outbox, tables: Tables, nth: int
) -> None:
    """Before or after it has sent its tasks: the next one delivers what it held, once."""
    await start(storage, "a")
    await start(storage, "b")
    await send(storage, notice(), begin("c"))
    pool = SessionPool(dsn, limit=1)
    async with pool.acquire() as session:
        await _die_at(session, nth)
    await pool.close()
    await outbox.deliver(now=T0)
    assert received(tables)[1:] == [("notify", "post", b"1")]
    assert received(tables, "c") == [("init", None, b"1")]
    assert waiting(tables) == []


async def _die_at(session: Session, nth: int) -> None:
    """Take the messages, perhaps make their tasks, and end the connection before the commit."""
    from progressor.storage.outbox import _delivering  # noqa: PLC0415 - what a courier sends

    params = {"limit": 10, "bytes": 1 << 20, "now": T0}
    letters = together((await session.begin({"take_messages": params}))["take_messages"])
    if nth == 2:
        made = await session._send(_delivering(letters, T0))
        assert len(made["drop_messages"]) == 2
    await session.close()


def test_the_schema_refuses_other_tasks(tables: Tables) -> None:
    """A message starts or notifies: only these can be stored."""
    with pytest.raises(psycopg.errors.CheckViolation):
        tables.execute(
            "INSERT INTO outbox (process_no, task_id, created_at, due, n, task_type, namespace, "
            "process_id, idempotency_key, request_hash) "
            "VALUES (1, 1, now(), now(), 0, 'call', 'x', 'y', 'k', '')"
        )
