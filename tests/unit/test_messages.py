"""Messages: what cannot be one is refused where it is made, and what a worker makes of those of a step."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from progressor.config import EngineOptions, RetryPolicy
from progressor.errors import InvalidRequest
from progressor.handlers.codec import JSON, RAW, Wire
from progressor.handlers.limits import bounded, checked
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.messages.message import MAX_MESSAGES, Message, message_key, request_hash
from progressor.model import Failure, Intent, Outcome, Rejection, Success, Task, TaskType
from progressor.testing import step
from progressor.transitions import decide
from progressor.worker.addresser import Addresser

OPTIONS = EngineOptions(max_value_bytes=1000, max_metadata_bytes=100, max_events_bytes=1500)


class Base64:
    """A codec that anybody can see through."""

    def encode(self, data: bytes, /) -> bytes:
        return b64encode(data)

    def decode(self, data: bytes, /) -> bytes:
        raise NotImplementedError


class Broken(Base64):
    """A codec without its keys."""

    def encode(self, data: bytes, /) -> bytes:
        raise KeyError("no key")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"namespace": "no namespace"}, "namespace"),
        ({"process_id": ""}, "process_id"),
        ({"process_id": "x" * 257}, "process_id"),
        ({"process_id": 7}, "process_id"),
        ({"name": None}, "name"),
        ({"name": "nul\x00"}, "name"),
        ({"kind": "start"}, "name"),
        ({"kind": "call"}, "kind"),
        ({"metadata": {}}, "metadata"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": message_key(1, 2, 3)}, "idempotency_key"),
    ],
)
def test_what_no_message_can_be(given: dict[str, Any], field: str) -> None:
    """InvalidRequest names the field."""
    values = {"namespace": "shop", "process_id": "o1", "name": "post", **given}
    with pytest.raises(InvalidRequest) as raised:
        Message(**values)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([Message("shop", "o1", "post")] * (MAX_MESSAGES + 1), "at most 100 messages"),
        ([Message("shop", "o1", "post", b"x" * 1001)], r"messages\[0\].args"),
        ([Message("shop", "o1", kind="start", metadata={"a": "x" * 100})], r"messages\[0\].metadata"),
        ([Message("shop", "o1", "post", b"x" * 800)] * 2, "max_events_bytes"),
    ],
)
def test_limits_of_a_step(messages: list[Message], what: str) -> None:
    """A step beyond them fails, and is not tried again."""
    outcome = bounded(Success(Intent(messages=tuple(messages))), OPTIONS)
    assert isinstance(outcome, Failure)
    assert not outcome.retryable
    with pytest.raises(AssertionError, match=what):
        raise AssertionError(outcome.error)


@pytest.mark.parametrize("message", ["text", Message("shop", "o1", "post", "no bytes")])
def test_what_a_raw_handler_must_not_return(message: Any) -> None:
    """A TypeError of its own step."""
    with pytest.raises(TypeError, match=r"Message(s|\.args)"):
        checked(Intent(messages=(message,)))


def test_metadata_of_a_raw_handler() -> None:
    """They are plain JSON then, or an InvalidRequest of its own step."""
    start = Message("shop", "o1", kind="start", metadata={"a": (1, 2)})
    assert checked(Intent(messages=(start,))).messages[0].metadata == {"a": [1, 2]}
    with pytest.raises(InvalidRequest):
        checked(Intent(messages=(Message("shop", "o1", kind="start", metadata={"a": "\x00"}),)))


def addressed(make_task: Any, *messages: Message, own: Wire = JSON, **wires: Wire) -> Outcome:
    task: Task = make_task(TaskType.CALL, task_id=7, lease=255)
    return Addresser(own, wires).addressed(Success(Intent(messages=messages)), task)


def test_a_message_gets_its_key_and_its_hash(make_task: Any) -> None:
    """The key names the step and the place in it; one that the handler gave stays."""
    given = Message("shop", "o1", "post", b"1", idempotency_key="nightly/1")
    outcome = addressed(make_task, Message("shop", "o1", kind="start"), given)
    assert isinstance(outcome, Success)
    first, second = outcome.intent.messages
    assert first.idempotency_key == "progressor:sent:7.0:ff"
    assert first.request_hash == request_hash("init", None, None)
    assert (second.idempotency_key, second.args) == ("nightly/1", b"1")
    assert second.request_hash == request_hash("notify", "post", b"1")


@pytest.mark.parametrize(
    ("own", "wires", "sealed"),
    [
        (JSON, {}, b"[1]"),
        (JSON, {"shop": Wire(Base64())}, b64encode(b"[1]")),
        (Wire(Base64()), {"shop": JSON}, b"[1]"),
        (Wire(Base64()), {"shop": RAW}, b"[1]"),
        (Wire(Base64()), {}, b64encode(b"[1]")),
        (RAW, {}, b"[1]"),
    ],
)
def test_which_codec_seals(make_task: Any, own: Wire, wires: dict[str, Wire], sealed: bytes) -> None:
    """That of the target, if it is served here; else that of the sender. The hash is of the plain bytes."""
    outcome = addressed(make_task, Message("shop", "o1", "post", b"[1]"), own=own, **wires)
    assert isinstance(outcome, Success)
    (message,) = outcome.intent.messages
    assert message.args == sealed
    assert message.request_hash == request_hash("notify", "post", b"[1]")


def test_a_codec_that_raises(make_task: Any) -> None:
    """The step fails, as it does for its state."""
    outcome = addressed(make_task, Message("shop", "o1", "post", b"1"), own=Wire(Broken()))
    assert isinstance(outcome, Failure)
    assert "KeyError" in outcome.error_types


@pytest.mark.parametrize("outcome", [Rejection("no"), Failure("ValueError: no")])
def test_only_a_success_sends(make_task: Any, make_snapshot: Any, outcome: Outcome) -> None:
    """A rejection and a failure have no messages to decide on."""
    task = make_task(TaskType.CALL)
    assert Addresser(JSON, {}).addressed(outcome, task) is outcome
    assert decide(make_snapshot(), task, outcome, RetryPolicy()).messages == ()
    sending = Success(Intent(messages=(Message("shop", "o1", "post", b"123"),)))
    decision = decide(make_snapshot(), task, sending, RetryPolicy())
    assert (decision.messages, decision.size) == (sending.intent.messages, 3)


async def test_a_unit_test_sees_what_a_step_sends() -> None:
    """With the arguments as values."""
    namespace: Namespace[list[int]] = Namespace("shop", state=list[int])

    @namespace.call
    async def pay(process: Process[list[int]], amount: int) -> None:
        process.send("ledger", "main", "post", {"amount": amount})
        process.send_start("ledger", "child")

    done = await step(pay, 3, state=[])
    assert done.messages == (
        Message("ledger", "main", "post", {"amount": 3}),
        Message("ledger", "child", kind="start"),
    )


async def test_clients_and_raw_handlers_have_no_draft(make_snapshot: Any, make_task: Any) -> None:
    """A client sends nothing, a raw handler returns its messages."""
    for view in (Process(make_snapshot()), Process(make_snapshot(), make_task(TaskType.CALL))):
        for send in (view.send, view.send_start):
            with pytest.raises(InvalidRequest):
                send("ledger", "main", "post")
