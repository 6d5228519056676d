"""Messages between processes, through the public API: sent with the step, one step in the target."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from progressor import (
    Client,
    HandlerFailed,
    Intent,
    InvalidRequest,
    Message,
    Namespace,
    Process,
    ProcessNotFound,
    Reject,
    Rejected,
    Remove,
    Task,
    TaskStatus,
    TaskType,
)
from progressor.node.courier import Courier
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import until
from tests.support import eventually

SHOP, LEDGER = "shop.order", "shop.ledger"


class Entry(BaseModel):
    """What an order posts."""

    amount: int


def ledger(name: str = LEDGER, **options: Any) -> Namespace[list[int]]:
    """Remembers what is posted, in its order."""
    namespace: Namespace[list[int]] = Namespace(name, state=list[int], **options)

    @namespace.init
    async def begin(process: Process[list[int]], first: list[int] | None = None) -> None:
        process.state = first or []

    @namespace.call
    async def post(process: Process[list[int]], entry: Entry) -> None:
        process.state.append(entry.amount)

    @namespace.call
    async def bounce(process: Process[list[int]], left: int) -> None:
        process.state = [*process.state, left]
        if left:
            other = "b" if process.process_id == "a" else "a"
            process.send(LEDGER, other, "bounce", left - 1)

    @namespace.call
    async def fail(process: Process[list[int]]) -> None:
        raise ValueError("no")

    return namespace


def shop(**options: Any) -> Namespace[dict[str, int]]:
    """Sends what its calls say, to whom they say."""
    namespace: Namespace[dict[str, int]] = Namespace(SHOP, state=dict[str, int], **options)

    @namespace.init
    async def begin(process: Process[dict[str, int]]) -> None:
        process.state = {}

    @namespace.call
    async def pay(process: Process[dict[str, int]], amounts: list[int]) -> int:
        for amount in amounts:
            process.send(LEDGER, "main", "post", Entry(amount=amount))
        return len(amounts)

    return namespace


def add_calls(namespace: Namespace[dict[str, int]]) -> Namespace[dict[str, int]]:
    """The calls of the shop whose steps end in other ways."""

    @namespace.call
    async def begin_ledger(process: Process[dict[str, int]], first: list[int]) -> None:
        process.send_start(LEDGER, f"of-{process.process_id}", first)
        process.send(LEDGER, f"of-{process.process_id}", "post", {"amount": 3})

    @namespace.call
    async def refuse(process: Process[dict[str, int]]) -> None:
        process.send(LEDGER, "main", "post", Entry(amount=1))
        raise Reject("no")

    @namespace.call
    async def fail(process: Process[dict[str, int]]) -> None:
        process.send(LEDGER, "main", "post", Entry(amount=1))
        raise ValueError("boom")

    @namespace.call
    async def leave(process: Process[dict[str, int]]) -> None:
        process.send(LEDGER, "main", "post", Entry(amount=9))
        process.remove()

    @namespace.call
    async def misuse(process: Process[dict[str, int]], how: str) -> str | None:
        targets = {"namespace": ("no namespace", "x", "post"), "id": (LEDGER, "", "post")}
        with pytest.raises(InvalidRequest) as raised:
            process.send(*targets.get(how, (LEDGER, "x", "")))
        return raised.value.field

    return namespace


async def posted(client: Client, process_id: str = "main", namespace: str = LEDGER) -> list[int]:
    return (await client.get(namespace, process_id)).state


async def test_a_notice_arrives_once(serve: MakeClient) -> None:
    """Each message is one step of the target, with its arguments, and the trace shows it."""
    client = await serve(shop(), ledger())
    await client.start(LEDGER, "main")
    await client.start(SHOP, "o1")
    assert await client.call(SHOP, "o1", "pay", [1, 2, 3]) == 3
    await until(lambda: posted(client), lambda got: got == [1, 2, 3])
    entries = [each for each in await client.trace(LEDGER, "main") if each.task_type is TaskType.NOTIFY]
    assert [(each.name, each.status) for each in entries] == [("post", TaskStatus.FINISHED)] * 3


async def test_a_chain_of_steps_keeps_its_order(serve: MakeClient) -> None:
    """Messages of one process to another arrive in the order in which they were sent."""
    client = await serve(shop(), ledger())
    await client.start(LEDGER, "main")
    await client.start(SHOP, "o1")
    for number in range(30):
        await client.call(SHOP, "o1", "pay", [2 * number, 2 * number + 1])
    await until(lambda: posted(client), lambda got: len(got) == 60)
    assert await posted(client) == list(range(60))


async def test_many_senders_of_one_target(serve: MakeClient) -> None:
    """What they post adds up."""
    client = await serve(shop(), ledger())
    await client.start(LEDGER, "main")
    await asyncio.gather(*(client.start(SHOP, f"o{n}") for n in range(20)))
    await asyncio.gather(*(client.call(SHOP, f"o{n}", "pay", [n]) for n in range(20) for _ in range(3)))
    await until(lambda: posted(client), lambda got: len(got) == 60)
    assert sum(await posted(client)) == 3 * sum(range(20))


async def test_a_process_is_started(serve: MakeClient) -> None:
    """With its arguments; a notice of the same step comes behind its init."""
    client = await serve(add_calls(shop()), ledger())
    await client.start(SHOP, "o1")
    await client.call(SHOP, "o1", "begin_ledger", [1, 2])

    async def got() -> list[int] | None:
        try:
            return await posted(client, "of-o1")
        except ProcessNotFound:
            return None

    await until(got, lambda got: got == [1, 2, 3])


async def test_what_fails_or_is_refused_sends_nothing(serve: MakeClient) -> None:
    """A later message of another process arrives, and nothing of these."""
    client = await serve(add_calls(shop()), ledger())
    await client.start(LEDGER, "main")
    await client.start(SHOP, "o1")
    await client.start(SHOP, "o2")
    with pytest.raises(Rejected):
        await client.call(SHOP, "o1", "refuse")
    with pytest.raises(HandlerFailed):
        await client.call(SHOP, "o1", "fail")
    await client.call(SHOP, "o2", "pay", [7])
    await until(lambda: posted(client), lambda got: 7 in got)
    assert await posted(client) == [7]


async def test_a_sender_that_removes_itself(serve: MakeClient) -> None:
    """Its last message arrives."""
    client = await serve(add_calls(shop()), ledger())
    await client.start(LEDGER, "main")
    await client.start(SHOP, "o1")
    await client.call(SHOP, "o1", "leave")
    await until(lambda: posted(client), lambda got: got == [9])


async def test_two_that_answer_each_other(serve: MakeClient) -> None:
    """Neither waits for the other, so none of them hangs."""
    client = await serve(ledger())
    await client.start(LEDGER, "a")
    await client.start(LEDGER, "b")
    await client.call(LEDGER, "a", "bounce", 9)
    await until(lambda: posted(client, "b"), lambda got: 0 in got)
    assert await posted(client, "a") == [9, 7, 5, 3, 1]
    assert await posted(client, "b") == [8, 6, 4, 2, 0]


@pytest.mark.parametrize("how", ["namespace", "id", "name"])
async def test_a_target_that_cannot_be(serve: MakeClient, how: str) -> None:
    """The handler gets the error, which names the field."""
    client = await serve(add_calls(shop()))
    await client.start(SHOP, "o1")
    field = {"namespace": "namespace", "id": "process_id", "name": "name"}[how]
    assert await client.call(SHOP, "o1", "misuse", how) == field


async def test_too_many_fail_their_step(serve: MakeClient) -> None:
    """A hundred are sent, one more is a failure of the handler."""
    client = await serve(shop(), ledger())
    await client.start(LEDGER, "main")
    await client.start(SHOP, "o1")
    assert await client.call(SHOP, "o1", "pay", list(range(100))) == 100
    with pytest.raises(HandlerFailed, match="at most 100 messages"):
        await client.call(SHOP, "o1", "pay", list(range(101)))


async def test_a_message_that_cannot_be_delivered(
    serve: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """It is noted in the log, with its sender and its target; the sender lives on."""
    client = await serve(shop(), ledger())
    await client.start(SHOP, "o1")
    with caplog.at_level(logging.WARNING, "progressor.courier"):
        await client.call(SHOP, "o1", "pay", [1])
        await eventually(lambda: caplog.records, "nothing was noted")
    (record,) = [each for each in caplog.records if each.name == "progressor.courier"]
    assert record.message.startswith("message not delivered")
    said = vars(record)
    assert (said["namespace"], said["process_id"]) == (SHOP, "o1")
    assert (said["target_namespace"], said["target_id"], said["reason"]) == (LEDGER, "main", "not_found")
    assert await client.call(SHOP, "o1", "pay", []) == 0


async def test_messages_to_a_broken_process(serve: MakeClient) -> None:
    """They stand in its trace, with their senders' keys, and run again after its repair, in their order."""
    client = await serve(shop(), ledger())
    await client.start(LEDGER, "main")
    await client.start(SHOP, "o1")
    with pytest.raises(HandlerFailed):
        await client.call(LEDGER, "main", "fail")
    await client.call(SHOP, "o1", "pay", [1, 2, 3])
    trace = await until(lambda: client.trace(LEDGER, "main"), lambda trace: len(trace) == 5)
    kept = trace[2:]
    assert [(each.status, each.args["amount"]) for each in kept] == [
        (TaskStatus.CANCELLED, amount) for amount in (1, 2, 3)
    ]
    assert {each.error for each in kept} == {"ValueError: no"}
    await client.simple_repair(LEDGER, "main")
    for each in kept:
        await client.redo(LEDGER, "main", each.task_id)
    await until(lambda: posted(client), lambda got: got == [1, 2, 3])


class Base64:
    """A codec that anybody can see through."""

    def encode(self, data: bytes, /) -> bytes:
        return b64encode(data)

    def decode(self, data: bytes, /) -> bytes:
        return b64decode(data, validate=True)


@pytest.mark.parametrize("coded", ["sender", "target"])
async def test_arguments_are_sealed_for_the_target(serve: MakeClient, coded: str) -> None:
    """With the codec of its namespace, or with none if it has none, whatever the sender's is."""
    codecs = {coded: Base64()}
    client = await serve(shop(codec=codecs.get("sender")), ledger(codec=codecs.get("target")))
    await client.start(LEDGER, "main")
    await client.start(SHOP, "o1")
    await client.call(SHOP, "o1", "pay", [1])
    await until(lambda: posted(client), lambda got: got == [1])


class Raw:
    """A raw handler that sends, under a key of its own."""

    async def process(self, task: Task, process: Process[Any], /) -> Intent:
        messages = (
            Message(LEDGER, "main", "post", b'{"amount": 5}', idempotency_key="nightly/2040-01-01"),
            Message(LEDGER, "child", args=b"[8]", kind="start", metadata={"by": "raw"}),
        )
        action = Remove() if task.name == "leave" else None
        return Intent(action=action, messages=messages if task.task_type is TaskType.CALL else ())


async def test_a_raw_handler(serve: MakeClient) -> None:
    """It returns messages in its Intent; a key of its own makes one step of many messages."""
    client = await serve(Namespace("raw", handler=Raw()), ledger())
    await client.start(LEDGER, "main")
    await client.start("raw", "r1")
    await client.call("raw", "r1", "go")
    await client.call("raw", "r1", "leave")
    await client.start("raw", "r1")
    await client.call("raw", "r1", "go")
    await until(lambda: client.search(metadata={"by": "raw"}), lambda page: len(page.items) == 1)
    await until(lambda: posted(client), lambda got: 5 in got)
    assert await posted(client, "child") == [8]
    assert await posted(client) == [5]


async def test_targets_of_another_engine(engine: MakeEngine, client: MakeClient) -> None:
    """Its worker is woken, or finds the task by its own scan."""
    await engine(ledger())
    await engine(shop())
    asking = await client(shop(), ledger())
    await asking.start(LEDGER, "main")
    await asking.start(SHOP, "o1")
    await asking.call(SHOP, "o1", "pay", [4])
    await until(lambda: posted(asking), lambda got: got == [4])


async def test_what_a_dead_worker_left(
    engine: MakeEngine, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its courier never came to it: a sweep delivers it."""
    ring = Courier.ring
    monkeypatch.setattr(Courier, "ring", lambda _self: None)
    running = await engine(shop(), ledger(), scan_interval=timedelta(milliseconds=90))
    client = running.client
    await client.start(LEDGER, "main")
    await client.start(SHOP, "o1")
    await client.call(SHOP, "o1", "pay", [4])
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM progressor.v_outbox").fetchall() == [(1,)]
    monkeypatch.setattr(Courier, "ring", ring)
    await until(lambda: posted(client), lambda got: got == [4])
