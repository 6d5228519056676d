"""Workers of two versions of an application, which serve the same processes at once."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from progressor import HandlerFailed, InvalidRequest, Namespace, Process
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.support import eventually

NS = "shop.order"


class Order(BaseModel):
    paid: int = 0


class Address(BaseModel):
    city: str = "Rome"


class NewAddress(Address):
    zip: str = "00184"


class OldOrder(Order):
    address: Address = Address()


class NewOrder(Order):
    coupon: str = ""
    address: NewAddress = NewAddress()


def version(state: type[Order]) -> Namespace:
    """A namespace whose states are of this type."""
    namespace = Namespace(NS, state=state)

    @namespace.init
    async def begin(process: Process[Order]) -> None:
        process.state = state.model_validate({"coupon": "spring", "address": {"zip": "53111"}})

    @namespace.call
    async def pay(process: Process[Order], amount: int) -> int:
        process.state.paid += amount
        return process.state.paid

    return namespace


async def test_an_old_worker_keeps_what_a_new_one_wrote(
    engine: MakeEngine, serve: MakeClient, client: MakeClient
) -> None:
    """A field that its model does not have, in the state and in a model within it."""
    new = version(NewOrder)
    newer = await engine(new)
    await newer.client.start(NS, "a")
    await newer.stop()
    older = await serve(version(OldOrder))
    assert await older.call(NS, "a", "pay", 5) == 5
    assert await older.call(NS, "a", "pay", 2) == 7
    reader = await client(new)
    assert (await reader.get(NS, "a")).state == NewOrder(
        paid=7, coupon="spring", address=NewAddress(zip="53111")
    )


class Letters:
    """The functions of an old version, and those that a new one adds."""

    def __init__(self, *, is_new: bool, **options: Any) -> None:
        self.namespace = namespace = Namespace(NS, **options)
        self.steps: list[str] = []

        @namespace.init
        async def begin(process: Process) -> None:
            self.steps.append("begin")
            process.state = 0

        @namespace.call
        async def pay(process: Process, amount: int) -> int:
            self.steps.append("pay")
            process.state += amount
            return process.state

        if is_new:
            self.add()

    def add(self) -> None:
        @self.namespace.call
        async def refund(process: Process) -> int:
            self.steps.append("refund")
            process.state -= 1
            return process.state

        @self.namespace.call
        async def lose(process: Process) -> None:
            raise ValueError

        @self.namespace.call
        async def remind(process: Process) -> None:
            process.set_timer(after=timedelta(milliseconds=100))

        @self.namespace.timeout
        async def late(process: Process) -> None:
            self.steps.append("late")
            process.state = -100

        @self.namespace.repair
        async def fix(process: Process) -> str:
            self.steps.append("fix")
            return "fixed"


@pytest.fixture
def old() -> Letters:
    return Letters(is_new=False)


@pytest.fixture
def new() -> Letters:
    return Letters(is_new=True)


def a_live_worker(dsn: str, function: str) -> None:
    """Register a worker that serves a function and renews its row no more."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO progressor.workers "
            "(worker_id, host, namespaces, step_timeouts, lease_age, functions) "
            "VALUES (4711, 'there', %s, ARRAY[interval '1 minute'], '3 s', %s)",
            ([NS], Jsonb({NS: [function]})),
        )


async def test_a_request_is_left_to_the_worker_that_knows_it(
    old: Letters, new: Letters, engine: MakeEngine, client: MakeClient, serve: MakeClient
) -> None:
    """No call of a function that the old version lacks is refused, by whomever it was sent."""
    asking = await serve(old.namespace)
    await engine(new.namespace)
    beside = await client()
    ids = [f"p{number}" for number in range(10)]
    for process_id in ids:
        await asking.start(NS, process_id)
    calls = [
        each.call(NS, process_id, name, *args)
        for process_id in ids
        for each in (asking, beside)
        for name, args in (("pay", (3,)), ("refund", ()), ("refund", ()))
    ]
    await asyncio.gather(*calls)
    assert [(await asking.get(NS, each)).state for each in ids] == [2] * 10
    assert new.steps.count("refund") == 40
    entries = [entry for each in ids for entry in await asking.trace(NS, each)]
    assert {(entry.status, entry.attempts_count) for entry in entries} == {("finished", 0)}


async def test_timers_and_repairs_are_left_too(
    old: Letters, new: Letters, engine: MakeEngine, serve: MakeClient
) -> None:
    """A timer of the new version is no failure of the old one."""
    asking = await serve(old.namespace)
    await engine(new.namespace)
    for each in ("a", "b"):
        await asking.start(NS, each)
    await asking.call(NS, "a", "remind")
    await eventually(lambda: "late" in new.steps, "the timer fires")
    assert (await asking.get(NS, "a")).state == -100
    with pytest.raises(HandlerFailed):
        await asking.call(NS, "b", "lose")
    assert await asking.repair(NS, "b") == "fixed"
    timers = [each for each in await asking.trace(NS, "a") if each.task_type == "timeout"]
    assert [(each.status, each.attempts_count) for each in timers] == [("finished", 0)]


async def test_what_nobody_serves_is_refused(old: Letters, engine: MakeEngine, serve: MakeClient) -> None:
    """As ever, also if the workers are many."""
    asking = await serve(old.namespace)
    await engine(Letters(is_new=False).namespace)
    await asking.start(NS, "a")
    with pytest.raises(InvalidRequest, match="has no call named 'refund'"):
        await asking.call(NS, "a", "refund")


async def test_the_worker_that_knows_it_dies(
    dsn: str, old: Letters, serve: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests wait for it, in order, and hold up nothing else; once it is dead they are refused."""
    caplog.set_level("INFO", "progressor.pool")
    asking = await serve(
        old.namespace, lease_age=timedelta(seconds=3), heartbeat_interval=timedelta(seconds=1)
    )
    for each in ("a", "b"):
        await asking.start(NS, each)
    a_live_worker(dsn, "call refund")
    refund = asyncio.create_task(asking.call(NS, "a", "refund"))
    await eventually(lambda: "request left" in caplog.text, "it is handed back")
    await asking.call(NS, "b", "pay", 1)
    behind = asyncio.create_task(asking.call(NS, "a", "pay", 1))
    for amount in range(2, 20):
        assert await asking.call(NS, "b", "pay", 1) == amount
    assert not refund.done()
    assert not behind.done()
    with pytest.raises(InvalidRequest, match="has no call named 'refund'"):
        await refund
    assert await behind == 1
    assert 1 <= caplog.text.count("request left to a worker that serves it") <= 10


@pytest.mark.parametrize("is_alive", [True, False])
async def test_a_step_waits_for_such_a_request(
    dsn: str,
    new: Letters,
    engine: MakeEngine,
    caplog: pytest.LogCaptureFixture,
    *,
    is_alive: bool,
) -> None:
    """The slot that a step lends while it waits is not used over and over to hand the request back."""
    caplog.set_level("INFO", "progressor.pool")
    old = Letters(is_new=False, concurrency=1)

    @old.namespace.call
    async def relay(_process: Process) -> int:
        answer: int = await running.client.call(NS, "b", "refund")
        return answer

    beat = timedelta(seconds=1)
    running = await engine(old.namespace, lease_age=3 * beat, heartbeat_interval=beat)
    for each in ("a", "b"):
        await running.client.start(NS, each)
    if is_alive:
        await engine(new.namespace)
        assert await running.client.call(NS, "a", "relay") == -1
    else:
        a_live_worker(dsn, "call refund")
        with pytest.raises(HandlerFailed, match="has no call named 'refund'"):
            await running.client.call(NS, "a", "relay")
    # A new worker that scans may find the request before the old one does.
    least = 0 if is_alive else 1
    assert least <= caplog.text.count("request left to a worker that serves it") <= 10
