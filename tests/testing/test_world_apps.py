"""Worlds of apps: lifespans, resources in their place, middleware; and handlers that run twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from progressor import (
    App,
    CallNext,
    HistoryRange,
    Intent,
    InvalidRequest,
    Namespace,
    Process,
    Reject,
    Rejected,
    RetryPolicy,
    StepView,
)
from progressor.testing import BrokenInWorld, World

START = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
DAY = timedelta(days=1)


def parcels(order: list[str]) -> App:
    """An app whose handler takes a resource, with a lifespan and middleware that note what they do."""
    namespace: Namespace[str] = Namespace("parcel", state=str)

    @namespace.init
    async def send(process: Process[str], args: str, *, outbox: list[str]) -> None:
        process.state = args
        outbox.append(args)

    @asynccontextmanager
    async def lifespan(_app: App) -> AsyncIterator[dict[str, list[str]]]:
        order.append("entered")
        yield {"outbox": order}
        order.append("left")

    async def noted(step: StepView, call_next: CallNext) -> Intent:
        order.append(step.process_id)
        return await call_next(step)

    return App([namespace], lifespan, [noted])


async def test_a_world_enters_the_lifespan_of_an_app(dsn: str) -> None:
    """Its handlers have the resources, and its middleware runs, as in an engine."""
    order: list[str] = []
    async with World(dsn, parcels(order)) as world:
        await world.client.start("parcel", "p", "a book")
    assert order == ["entered", "p", "a book", "left"]


async def test_resources_of_a_world_stand_in_for_the_lifespan(dsn: str) -> None:
    """It is not entered; the middleware runs all the same."""
    order: list[str] = []
    fake: list[str] = []
    async with World(dsn, parcels(order), resources={"outbox": fake}) as world:
        await world.client.start("parcel", "p", "a book")
    assert (order, fake) == (["p"], ["a book"])


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        ({}, "not given: outbox for send of parcel"),
        ({"connection": 1}, r"World\(resources=...\): no resource can be named connection"),
        ([1], r"World\(resources=...\) must give resources by name"),
    ],
)
async def test_resources_that_a_world_cannot_hand_out(dsn: str, resources: Any, says: str) -> None:
    """What is missing or wrong is named before anything runs."""
    with pytest.raises(InvalidRequest, match=says) as caught:
        async with World(dsn, parcels([]), resources=resources):
            raise AssertionError("it runs")
    assert caught.value.field == "resources"


async def test_an_advance_names_a_process_that_middleware_broke(dsn: str) -> None:
    """With the traceback, as for a handler; it counts as one step, and the lifespan sees the namespaces."""
    namespace: Namespace[Any] = Namespace("parcel", retry_policy=RetryPolicy(max_attempts=1))
    seen: list[tuple[Namespace[Any], ...]] = []

    @namespace.init
    async def send(process: Process[Any]) -> None:
        process.set_timer(after=DAY)

    @namespace.timeout
    async def arrive(process: Process[Any]) -> None:
        raise AssertionError("it runs")

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        seen.append(app.namespaces)
        yield

    async def strike(step: StepView, call_next: CallNext) -> Intent:
        if step.task_type == "timeout":
            raise LookupError("no courier")
        return await call_next(step)

    async with World(dsn, App([namespace], lifespan, [strike]), now=START) as world:
        await world.client.start("parcel", "p")
        with pytest.raises(BrokenInWorld, match=r"(?s)parcel/p' broke.*Traceback.*in strike.*no courier"):
            await world.advance(DAY)
    assert seen == [(namespace,)]


async def test_twice_finds_an_effect_without_a_key(dsn: str) -> None:
    """Both runs see the same process, task, key and time; only the second one is saved."""
    runs: list[tuple[Any, ...]] = []
    namespace: Namespace[int] = Namespace("purse", state=int)

    def note(process: Process[int], *more: Any) -> None:
        runs.append((process.task.idempotency_key, process.task.attempts_count, process.now, *more))

    @namespace.init
    async def open_(process: Process[int], args: int) -> None:
        process.state = args
        note(process)

    @namespace.call
    async def pay(process: Process[int], args: int) -> int:
        process.state += args
        process.emit("paid")
        process.set_timer(after=DAY)
        note(process, process.state)
        if process.state > 10:
            raise Reject("too much")
        return process.state

    @namespace.timeout
    def lapse(process: Process[int]) -> None:
        process.state -= 1
        note(process, process.state)

    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("purse", "p", 1, idempotency_key="once")
        world.twice()
        await world.client.start("purse", "q", 1, idempotency_key="q")
        assert await world.client.call("purse", "p", "pay", 4, idempotency_key="a") == 5
        with pytest.raises(Rejected, match="too much"):
            await world.client.call("purse", "p", "pay", 9, idempotency_key="b")
        await world.advance(DAY)
        process = await world.client.get("purse", "p", range=HistoryRange())
    due = START + DAY
    twice = [("q", 0, START), ("a", 0, START, 5), ("b", 0, START, 14), (None, 0, due, 4)]
    assert runs == [("once", 0, START), *(run for run in twice for _ in range(2))]
    assert process.state == 4
    assert [event.name for event in process.history] == ["paid"]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_rows_of_the_first_run_are_rolled_back(dsn: str, kind: str) -> None:
    """A handler with SQL of its own has a transaction for each run."""
    seen: list[int] = []
    namespace: Namespace[int] = Namespace("book", state=int)
    rows = "INSERT INTO entry VALUES (1) RETURNING (SELECT count(*) FROM entry)"

    if kind == "async":

        @namespace.init
        async def enter(process: Process[int], *, connection: psycopg.AsyncConnection[Any]) -> None:
            found = await (await connection.execute(rows)).fetchone()
            assert found is not None
            seen.append(found[0])

    else:

        @namespace.init
        def enter_in_a_thread(process: Process[int], *, connection: psycopg.Connection[Any]) -> None:
            found = connection.execute(rows).fetchone()
            assert found is not None
            seen.append(found[0])

    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("CREATE TABLE entry (number integer)")
        async with World(dsn, [namespace], connection_slots=1) as world:
            world.twice()
            for each in "abc":
                await world.client.start("book", each)
        assert own.execute("SELECT count(*) FROM entry").fetchone() == (3,)
    assert seen == [0, 0, 1, 1, 2, 2]


async def test_only_a_world_that_is_entered_runs_twice(dsn: str) -> None:
    """Before that there is no worker."""
    with pytest.raises(InvalidRequest, match="enter it"):
        World(dsn, [Namespace("purse")]).twice()
