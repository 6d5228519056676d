"""Steps without a database: a decorated function on a process of the test's choosing."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from progressor import (
    Event,
    InvalidAnswer,
    InvalidRequest,
    InvalidState,
    Namespace,
    NonRetryable,
    Process,
    ProcessStatus,
    Reject,
    TaskType,
)
from progressor.testing import DoneTimer, UnitProcess, process, step

NOW = datetime(2024, 2, 29, 12, 30, 0, 123457, tzinfo=UTC)
DAY = timedelta(days=1)


class Base64:
    """A codec that shows whether it was used."""

    def encode(self, data: bytes, /) -> bytes:
        return base64.b64encode(data)

    def decode(self, data: bytes, /) -> bytes:
        return base64.b64decode(data)


class Subscription(BaseModel):
    plan: str = "pro"
    balance: int = 0


class Pay(BaseModel):
    amount: int


class Receipt(BaseModel):
    balance: int


class Purse:
    """A resource."""

    def __init__(self) -> None:
        self.paid: list[int] = []


subscriptions = Namespace("subscriptions", state=Subscription, codec=Base64())


@subscriptions.init
async def begin(process: Process[Subscription], plan: str) -> None:
    process.state = Subscription(plan=plan)
    process.metadata["plan"] = plan
    process.set_timer(after=30 * DAY)


@subscriptions.call
async def pay(process: Process[Subscription], args: Pay) -> Receipt:
    if args.amount <= 0:
        raise Reject("amount must be positive", least=1)
    process.state.balance += args.amount
    process.emit("paid", amount=args.amount)
    return Receipt(balance=process.state.balance)


@subscriptions.call
def pay_from(process: Process[Subscription], amount: int, *, purse: Purse) -> str:
    purse.paid.append(amount)
    return f"{process.process_id} at {process.now.isoformat()} for {process.context}"


@subscriptions.call
async def end(process: Process[Subscription], at: datetime | None = None) -> None:
    if at is None:
        process.remove()
    else:
        process.set_timer(at=at, remove=True)


@subscriptions.call
async def spoil(process: Process[Subscription], what: str) -> int:
    match what:
        case "state":
            process.state.balance = "much"  # type: ignore[assignment]
        case "event":
            process.emit("spoiled", by=object())
        case "answer":
            return "much"  # type: ignore[return-value]
        case "size":
            process.emit("large", text="x" * (9 << 20))
        case _:
            raise ZeroDivisionError(what)
    return 0


@subscriptions.timeout
async def bill(process: Process[Subscription]) -> None:
    if process.history and process.history[-1].name == "warned":
        process.unset_timer()
    if process.state.balance < 0:
        raise Reject("no more credit")
    process.state.balance -= 30


@subscriptions.repair
async def fix(process: Process[Subscription], args: dict[str, Any]) -> str | None:
    process.state = Subscription(**args)
    return process.detail


async def test_a_call_returns_all_that_is_saved() -> None:
    """State, events, timer and answer, as they are read back."""
    state = Subscription(balance=10)
    done = await step(pay, Pay(amount=3), state=state, now=NOW)
    assert (done.state, done.answer) == (Subscription(balance=13), Receipt(balance=13))
    assert done.events == (Event({"amount": 3}, {"name": "paid"}, 1, NOW, done.events[0].task_id),)
    assert (done.timer, done.rejected, done.removed, done.metadata) == (None, None, False, {})
    assert done.intent is not None
    assert done.intent.response == base64.b64encode(b'{"balance":13}')
    assert state == Subscription(balance=10), "the test's own object is not changed: JSON lies between"


async def test_an_init_makes_a_state_and_a_timer() -> None:
    """Its timer says both when it is due and how long after the step."""
    done = await step(begin, "basic", now=NOW)
    assert done.state == Subscription(plan="basic")
    assert done.metadata == {"plan": "basic"}
    assert done.timer == DoneTimer(NOW + 30 * DAY, 30 * DAY)
    with pytest.raises(InvalidRequest, match="an init makes the state"):
        await step(begin, "basic", state=Subscription())


async def test_a_rejection_changes_nothing() -> None:
    """It is there with its reason and details."""
    done = await step(
        pay, Pay(amount=0), state=Subscription(balance=1), timer=NOW, now=NOW, metadata={"a": 1}
    )
    assert done.rejected is not None
    assert (done.rejected.reason, done.rejected.details) == ("amount must be positive", {"least": 1})
    assert (done.state, done.events) == (Subscription(balance=1), ())
    assert (done.timer, done.metadata, done.intent) == (DoneTimer(NOW, 0 * DAY), {"a": 1}, None)


async def test_a_timeout_runs_with_its_history() -> None:
    """The timer that fired is gone, unless it is set anew, and others stay; a Reject fails it."""
    later = {"later": NOW + DAY}
    done = await step(bill, state=Subscription(balance=30), now=NOW, timer=NOW, timers=later)
    assert (done.state.balance, done.timer) == (0, None)
    assert done.timers == {"later": DoneTimer(NOW + DAY, DAY)}
    warned = Event({"n": 1}, {"name": "warned"})
    done = await step(bill, state=Subscription(), now=NOW, timer=NOW + DAY, history=[{"n": 0}, warned])
    assert done.timer is None
    with pytest.raises(Reject, match="no more credit"):
        await step(bill, state=Subscription(balance=-1))


async def test_a_repair_sees_a_broken_process() -> None:
    """With the detail that the test states."""
    done = await step(fix, {"plan": "new"}, state=Subscription(), detail="RuntimeError: of old")
    assert (done.state.plan, done.answer) == ("new", "RuntimeError: of old")


async def test_a_plain_function_runs_with_its_resources() -> None:
    """In a thread, as in an engine; those of other functions need not be given."""
    purse = Purse()
    done = await step(
        pay_from,
        7,
        state=Subscription(),
        now=NOW,
        process_id="acme",
        context="me",
        resources={"purse": purse},
    )
    assert done.answer == f"acme at {NOW.isoformat()} for me"
    assert purse.paid == [7]
    with pytest.raises(InvalidRequest, match="pay_from takes resources that are not given: purse"):
        await step(pay_from, 7, state=Subscription())


async def test_a_process_that_is_removed() -> None:
    """Now, or by a timer."""
    assert (await step(end, state=Subscription())).removed
    done = await step(end, NOW + DAY, state=Subscription(), now=NOW)
    assert (done.removed, done.timer) == (False, DoneTimer(NOW + DAY, DAY, remove=True))


@pytest.mark.parametrize(
    ("what", "error", "match"),
    [
        ("state", InvalidState, "state.balance: Input should be a valid integer"),
        ("event", InvalidRequest, "event spoiled.by has no JSON form"),
        ("answer", InvalidAnswer, "spoil has answered, but not with int"),
        ("size", InvalidRequest, "ResultTooLarge: .* at most 8,388,608 bytes"),
        ("error", ZeroDivisionError, "error"),
    ],
)
async def test_what_an_engine_cannot_save_fails(what: str, error: type[Exception], match: str) -> None:
    """Errors of the handler are raised as they are."""
    with pytest.raises(error, match=match):
        await step(spoil, what, state=Subscription())


async def test_arguments_and_state_must_fit() -> None:
    """As in a request, and as in the tables."""
    with pytest.raises(InvalidRequest, match=r"args\.amount: Input should be a valid integer"):
        await step(pay, {"amount": "much"}, state=Subscription())
    with pytest.raises(InvalidRequest, match="args has no JSON form"):
        await step(pay, object(), state=Subscription())
    with pytest.raises(InvalidState, match="state must be Subscription, not dict"):
        await step(pay, Pay(amount=1), state={"plan": "pro"})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="now must be an aware datetime"):
        await step(pay, Pay(amount=1), state=Subscription(), now=datetime(2024, 1, 1))


async def test_a_function_must_serve_one_thing() -> None:
    """Or the test says which."""
    first: Namespace[Any] = Namespace("first")
    second: Namespace[Any] = Namespace("second")

    @first.timeout
    @second.timeout
    @second.call
    async def both(process: Process[Any]) -> str:
        return f"{process.namespace} {process.task.task_type}"

    with pytest.raises(InvalidRequest, match="both serves several: state namespace= or task_type="):
        await step(both)
    assert (await step(both, namespace=first)).answer == "first timeout"
    assert (await step(both, task_type=TaskType.CALL)).answer == "second call"
    with pytest.raises(InvalidRequest, match="test_a_function_must_serve_one_thing serves nothing"):
        await step(test_a_function_must_serve_one_thing)  # type: ignore[arg-type]


def _charge(process: Process[Subscription], amount: int) -> None:
    """A function as users have them: it takes a process, and is no handler."""
    if process.status is not ProcessStatus.RUNNING:
        raise NonRetryable
    process.state.balance -= amount
    process.emit("charged", amount=amount, on=process.now.date())
    process.set_timer(after=DAY)


def test_a_process_for_a_function_that_takes_one() -> None:
    """Made without a cast, read and changed as in a handler; `done` shows the changes."""
    made: UnitProcess[Subscription] = process(
        Subscription(balance=100), process_id="acme", now=NOW, metadata={"a": 1}, history=[{"n": 1}]
    )
    _charge(made, 30)
    assert made.state.balance == 70
    assert (made.process_id, made.now, made.metadata, made.last_event_id) == ("acme", NOW, {"a": 1}, 1)
    done = made.done
    assert done.state == Subscription(balance=70)
    assert [(each.name, each.payload, each.event_id) for each in done.events] == [
        ("charged", {"amount": 30, "on": "2024-02-29"}, 2)
    ]
    assert done.timer == DoneTimer(NOW + DAY, DAY)
