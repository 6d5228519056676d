"""Steps of a typed namespace: who serves a task, and what is saved of it."""

import contextvars
import functools
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from progressor.errors import Reject
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.loggers import message_of
from progressor.model import Event, Intent, Rejection, Success, TaskType


class Subscription(BaseModel):
    plan: str
    balance: int = Field(default=0, ge=0)


class Pay(BaseModel):
    amount: int


@dataclass
class Point:
    x: int


class Move(TypedDict):
    x: int


class Renamed(BaseModel):
    plan: str = Field(alias="planName")
    price: int = Field(default=1, serialization_alias="pp", validation_alias="qq")


class Reversed:
    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


def serving(function: Any, **options: Any) -> Namespace:
    """A namespace with one call, `it`."""
    namespace = Namespace("billing", **options)
    namespace.call(name="it")(function)
    return namespace


@pytest.mark.parametrize("stored", [None, b"null"])
async def test_a_default_is_of_one_step(run_step: Any, stored: bytes | None) -> None:
    """What a handler changes in it no other step sees."""

    async def it(process: Process[Any], seen: list[int] = []) -> list[int]:  # noqa: B006 - what users write
        seen.append(len(seen))
        return seen

    namespace = serving(it)
    for _ in range(2):
        assert (await run_step(namespace, "it", stored)).intent.response == b"[0]"


async def test_a_default_that_is_known_by_its_identity(run_step: Any) -> None:
    """It is no copy."""
    missing = object()

    async def it(process: Process[Any], given: Any = missing) -> bool:
        return given is missing

    assert (await run_step(serving(it), "it")).intent.response == b"true"


async def test_a_whole_step(run_step: Any) -> None:
    """One call reads its arguments, changes the state, emits an event and answers."""

    async def pay(process: Process[Subscription], args: Pay) -> int:
        process.state.balance += args.amount
        process.emit("paid", amount=args.amount)
        process.metadata["debtor"] = False
        return process.state.balance

    namespace = serving(pay, state=Subscription)
    outcome = await run_step(namespace, "it", b'{"amount":10}', aux_state=b'{"plan":"pro","balance":1}')
    assert outcome == Success(
        Intent(
            events=(Event(b'{"amount":10}', {"name": "paid"}),),
            response=b"11",
            aux_state=b'{"plan":"pro","balance":11}',
            metadata={"debtor": False},
        )
    )


async def test_every_task_type_finds_its_function(run_step: Any) -> None:
    """init, timeout and repair have one function; calls and notifications go by name."""
    namespace = Namespace("billing")

    @namespace.init
    async def open_(process: Process[None], args: dict[str, int]) -> Any:
        return ["init", args]

    @namespace.call
    async def pay(process: Process[None]) -> str:
        return process.task.task_type

    @namespace.timeout
    async def bill(process: Process[None]) -> str:
        return "timeout"

    @namespace.repair
    async def fix(process: Process[None], args: dict[str, int]) -> Any:
        return ["repair", args]

    async def response(task_type: TaskType, name: str | None = None, args: Any = None) -> Any:
        return (await run_step(namespace, name, args, task_type=task_type)).intent.response

    assert await response(TaskType.INIT, args=b'{"a":1}') == b'["init",{"a":1}]'
    assert await response(TaskType.CALL, "pay") == b'"call"'
    assert await response(TaskType.NOTIFY, "pay") == b'"notify"'
    assert await response(TaskType.TIMEOUT) == b'"timeout"'
    assert await response(TaskType.REPAIR) == b'["repair",{}]'


@pytest.mark.parametrize(
    ("task_type", "name", "text"),
    [
        (TaskType.INIT, None, "namespace billing has no init handler"),
        (TaskType.REPAIR, None, "namespace billing has no repair handler"),
        (TaskType.CALL, "x", "namespace billing has no call named 'x' (it has: it)"),
        (TaskType.NOTIFY, None, "namespace billing has no call named None (it has: it)"),
    ],
)
async def test_what_the_namespace_lacks_is_refused(
    run_step: Any, task_type: TaskType, name: str | None, text: str
) -> None:
    """A request that nothing serves is refused as invalid, and the process lives on."""

    async def it(process: Process[None]) -> None: ...

    outcome = await run_step(serving(it), name, task_type=task_type)
    assert isinstance(outcome, Rejection)
    assert (outcome.reason, outcome.invalid) == (text, True)


async def test_the_likeliest_name_comes_first(run_step: Any) -> None:
    """Of many calls ten are named: first those that are like the one that was asked for."""
    namespace = Namespace("billing")

    async def it(process: Process[None]) -> None: ...

    for number in range(12):
        namespace.call(name=f"a{number:02}")(it)
    namespace.call(name="upgrade")(it)
    outcome = await run_step(namespace, "upgrad")
    names = ", ".join(["upgrade", *(f"a{number:02}" for number in range(9))])
    assert outcome.reason.endswith(f"(it has: {names} and 3 more)")


@pytest.mark.parametrize("timer", [{"after": timedelta(1)}, {"at": datetime(2030, 1, 1, tzinfo=UTC)}])
async def test_a_timer_that_nothing_serves_is_refused(run_step: Any, timer: dict[str, Any]) -> None:
    """A namespace without a timeout handler sets none but one that removes its process."""

    async def it(process: Process[None]) -> None:
        process.set_timer(**timer)

    async def remove(process: Process[None]) -> None:
        process.set_timer(**timer, remove=True)

    text = "namespace billing has no timeout handler, so no timer can be set"
    outcome = await run_step(serving(it), "it")
    assert outcome.error.startswith(f"MissingHandler: {text}")
    assert isinstance(await run_step(serving(remove), "it"), Success)
    args = b'{"after": 5}'
    outside = await run_step(serving(remove), "progressor:set_timer", args)
    assert isinstance(outside, Rejection)
    assert (outside.invalid, outside.reason.startswith(text)) == (True, True)


async def test_a_timer_without_a_handler_fails(run_step: Any) -> None:
    """Nobody asked, so a timer that nothing serves is a failure that can be retried."""
    outcome = await run_step(Namespace("billing"), task_type=TaskType.TIMEOUT)
    assert outcome.error.startswith("MissingHandler: namespace billing has no timeout handler")
    assert outcome.retryable


# State


async def test_a_state_that_breaks_its_own_rules_fails(run_step: Any) -> None:
    """A state that could not be loaded again is not saved."""

    async def overdraw(process: Process[Subscription]) -> None:
        process.state.balance -= 100

    outcome = await run_step(
        serving(overdraw, state=Subscription), "it", aux_state=b'{"plan":"pro","balance":1}'
    )
    assert outcome.error == (
        "InvalidState: state.balance: Input should be greater than or equal to 0 (Subscription)"
    )


async def test_states_with_aliases_round_trip(run_step: Any) -> None:
    """Aliases serve the outside; the stored state is always readable."""

    async def raise_price(process: Process[Renamed]) -> int:
        if process.state is None:
            process.state = Renamed(planName="pro")
        process.state.price += 1
        return process.state.price

    namespace = serving(raise_price, state=Renamed)
    first = (await run_step(namespace, "it")).intent
    assert first.aux_state == b'{"plan":"pro","price":2}'
    assert (await run_step(namespace, "it", aux_state=first.aux_state)).intent.response == b"3"


@pytest.mark.parametrize("declared", [dict[str, int], Move, Point, int, list[Pay]])
async def test_any_type_can_be_a_state(run_step: Any, declared: Any) -> None:
    """The state may be of any type that pydantic knows."""

    async def it(process: Process[Any]) -> str:
        return type(process.state).__name__

    stored = {int: b"1", list[Pay]: b'[{"amount":1}]'}.get(declared, b'{"x":1}')
    outcome = await run_step(serving(it, state=declared), "it", aux_state=stored)
    assert isinstance(outcome, Success)
    assert outcome.intent.aux_state is None


async def test_nothing_is_saved_of_a_refused_step(run_step: Any) -> None:
    """Reject drops what the handler had asked for."""

    async def it(process: Process[Any]) -> None:
        process.emit("paid")
        raise Reject("no")

    assert await run_step(serving(it), "it") == Rejection("no")


async def with_anything(process, args):  # type: ignore[no-untyped-def]
    return args


async def with_nothing(process: Any) -> Any:
    return "done"


# Codec


async def test_a_codec_covers_all_that_is_stored(run_step: Any) -> None:
    """State, arguments, answer, context and payloads pass the codec; metadata does not."""

    async def it(process: Process[Any], args: list[int]) -> Any:
        process.emit("it", n=args)
        process.metadata["n"] = process.history[0].payload
        before, process.state = process.state, [12]
        return [before, process.context, 34]

    outcome = await run_step(
        serving(it, codec=Reversed()),
        "it",
        b"]12[",
        context=b"65",
        aux_state=b"87",
        history=(Event(b"09"),),
    )
    assert outcome == Success(
        Intent(
            events=(Event(b'}]12[:"n"{', {"name": "it"}),),
            response=b"]43,65,87[",
            aux_state=b"]21[",
            metadata={"n": 90},
        )
    )


async def test_a_codec_keeps_an_unchanged_state(run_step: Any) -> None:
    """What is compared is the JSON, so a codec that never writes the same bytes costs nothing."""

    async def it(process: Process[Any]) -> Any:
        return process.state

    outcome = await run_step(serving(it, codec=Reversed()), "it", aux_state=b"21")
    assert outcome == Success(Intent(response=b"21"))


async def test_a_client_without_the_codec_is_refused(
    run_step: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Arguments that the codec cannot read do not break the process; a worker without keys says so."""

    class Strict(Reversed):
        def decode(self, data: bytes) -> bytes:
            raise ValueError("secret")

    outcome = await run_step(serving(with_anything, codec=Strict()), "it", b"{}")
    assert isinstance(outcome, Rejection)
    assert outcome.invalid
    assert outcome.reason.startswith("args cannot be decoded (ValueError)")
    said = [(message_of(record), record.cause) for record in caplog.records]
    assert said == [("request cannot be decoded", "ValueError")]


# Sync handlers

USER: contextvars.ContextVar[str] = contextvars.ContextVar("USER", default="nobody")


async def test_a_sync_handler_runs_in_a_thread_with_the_context(run_step: Any) -> None:
    """A plain function does not hold up the loop, and sees the context variables."""

    def it(process: Process[Subscription], args: Pay) -> list[str]:
        process.state.balance += args.amount
        return [USER.get(), str(threading.current_thread() is threading.main_thread())]

    USER.set("me")
    namespace = serving(it, state=Subscription)
    outcome = await run_step(namespace, "it", b'{"amount":1}', aux_state=b'{"plan":"a"}')
    assert outcome.intent.response == b'["me","False"]'
    assert outcome.intent.aux_state == b'{"plan":"a","balance":1}'


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no"), "ValueError: no"),
        (StopIteration(3), "RuntimeError: the handler raised StopIteration(3)"),
        (SystemExit(1), "SystemExit: 1"),
    ],
)
async def test_what_a_sync_handler_raises(run_step: Any, error: Any, text: str) -> None:
    """Whatever a sync handler raises comes out as its failure."""

    def it(process: Process[None]) -> None:
        raise error

    assert (await run_step(serving(it), "it")).error == text


async def test_a_sync_wrapper_of_an_async_function(run_step: Any) -> None:
    """A decorator that hides `async def` changes nothing."""

    @functools.wraps(with_nothing)
    def wrapper(process: Any) -> Any:
        return with_nothing(process)

    assert await run_step(serving(wrapper), "it") == Success(Intent(response=b'"done"'))


def test_a_view_for_clients(make_snapshot: Any) -> None:
    """A namespace at hand shows processes with their declared state."""
    process = Namespace("billing", state=Subscription).view(make_snapshot(aux_state=b'{"plan":"pro"}'))
    assert process.state == Subscription(plan="pro")
