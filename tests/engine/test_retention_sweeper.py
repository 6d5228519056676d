"""Retention from outside: a namespace says what it keeps, and callers see what is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest

from progressor import (
    Client,
    Engine,
    HistoryRange,
    HistoryTruncated,
    InvalidRequest,
    NamespaceNotFound,
    Retention,
    TaskNotFound,
)
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from tests.acceptance.support import until
from tests.engine.meters import meters
from tests.open_access import OpenAccess
from tests.support import NS, age, check_invariants

DAY = timedelta(days=1)


@pytest.fixture(params=["client", "http"])
async def case(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Client | HttpClient]:
    """A client of a running engine, and one of its API."""
    async with AsyncExitStack() as stack:
        kept = Retention(tasks=30 * DAY, keys=60 * DAY, events=3)
        options = {"zombie_interval": timedelta(seconds=0.1)}
        engine = Engine(dsn, [meters(retention=kept)], **options)
        await stack.enter_async_context(engine)
        # The first walk begins as soon as the namespace is known. No step may come before its end.
        await has_walked(engine.client)
        if request.param == "client":
            yield engine.client
        else:
            app = make_app(engine.client, access=OpenAccess())
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            yield await stack.enter_async_context(HttpClient("http://api", transport=transport))
    check_invariants(dsn)


async def walked(case: Client | HttpClient, *, tasks: int = 0, events: int = 0) -> None:
    """A walk that begins now has deleted this."""
    await case.begin_retention(NS)
    await has_walked(case, tasks=tasks, events=events)


async def has_walked(case: Client | HttpClient, *, tasks: int = 0, events: int = 0) -> None:
    """The walk that has begun ends, and has deleted this."""
    known = await until(lambda: case.retention(NS), lambda known: known.ended_at is not None)
    assert (known.tasks_deleted, known.events_deleted) == (tasks, events)


async def test_a_history_begins_with_what_is_left(case: Client | HttpClient) -> None:
    """Ids do not change, and who asks for what is gone is told so."""
    await case.start(NS, "m1")
    for units in range(5):
        await case.call(NS, "m1", "read", units)
    await walked(case, events=3)
    meter = await case.get(NS, "m1")
    assert (meter.first_event_id, meter.last_event_id) == (4, 6)
    assert [each.event_id for each in meter.history] == [4, 5, 6]
    for wanted, found in (
        (HistoryRange(limit=2), [4, 5]),
        (HistoryRange(3, 2), [4, 5]),
        (HistoryRange(5), [6]),
        (HistoryRange(6), []),
        (HistoryRange(direction="backward"), [6, 5, 4]),
        (HistoryRange(limit=1, direction="backward"), [6]),
        (HistoryRange(6, 10, "backward"), [5, 4]),
    ):
        shown = (await case.get(NS, "m1", range=wanted)).history
        assert [each.event_id for each in shown] == found
    for wanted in (HistoryRange(2), HistoryRange(1, 1), HistoryRange(4, 5, "backward")):
        with pytest.raises(HistoryTruncated) as caught:
            await case.get(NS, "m1", range=wanted)
        assert caught.value.first_event_id == 4


async def test_an_old_task_of_another_process(case: Client | HttpClient, dsn: str) -> None:
    """Nobody is told that it was deleted, or when it ended: only that it may have been."""
    await case.start(NS, "m1")
    await case.start(NS, "m2")
    others = await case.submit_call(NS, "m2", "read", 7)
    assert await case.answer(others) == 7
    await case.call(NS, "m1", "read", 7)
    await age(dsn, 61 * DAY)
    async with await psycopg.AsyncConnection.connect(dsn) as own:
        young = "UPDATE progressor.tasks SET finished_time = now() WHERE task_id = %s"
        await own.execute(young, [others.task_id])
    await walked(case, tasks=3)
    for asked in (case.redo(NS, "m1", others.task_id), case.result(NS, "m1", others.task_id)):
        with pytest.raises(TaskNotFound) as caught:
            await asked
        assert caught.value.is_deleted
        assert str(caught.value).endswith(
            f"task {others.task_id} was deleted by the retention of its namespace, "
            "or never was of this process"
        )
    assert await case.result(NS, "m2", others.task_id) == 7


async def test_an_answer_that_is_deleted(case: Client | HttpClient, dsn: str) -> None:
    """Is not there any more, which is said; a request with its key is a new one."""
    await case.start(NS, "m1")
    receipt = await case.submit_call(NS, "m1", "read", 7, idempotency_key="k")
    assert await case.answer(receipt) == 7
    await age(dsn, 61 * DAY)
    await walked(case, tasks=2)
    for asked in (case.answer(receipt), case.result(NS, "m1", receipt.task_id)):
        with pytest.raises(TaskNotFound) as caught:
            await asked
        assert caught.value.is_deleted
    with pytest.raises(TaskNotFound) as never:
        await case.result(NS, "m1", receipt.task_id + 1000)
    assert not never.value.is_deleted
    assert await case.call(NS, "m1", "read", 8, idempotency_key="k") == 8
    assert [each.name for each in await case.trace(NS, "m1")] == ["read"]


async def test_an_operator_changes_it(case: Client | HttpClient, dsn: str) -> None:
    """What is set counts before the code, and is shown; taken back, the code counts again."""
    known = await case.retention(NS)
    assert (known.is_set, known.retention) == (False, Retention(tasks=30 * DAY, keys=60 * DAY, events=3))
    await case.start(NS, "m1")
    await age(dsn, 10 * DAY)
    found = await case.estimate_retention(NS, Retention(tasks=5 * DAY))
    assert (found.tasks, found.old_tasks, found.events, found.old_events) == (1, 1, 1, 0)
    assert (await case.estimate_retention(NS)).old_tasks == 0
    wanted = Retention(tasks=5 * DAY, events=9 * DAY)
    await case.set_retention(NS, wanted)
    known = await case.retention(NS)
    assert (known.is_set, known.retention) == (True, wanted)
    await has_walked(case, tasks=1, events=1)
    await case.set_retention(NS, Retention())
    assert (await case.retention(NS)).retention.is_for_ever
    await case.set_retention(NS, None)
    assert (await case.retention(NS)).retention.keys == 60 * DAY


async def test_bad_input(case: Client | HttpClient) -> None:
    """Is refused before anything is written."""
    for asked in (
        case.retention("no.such"),
        case.set_retention("no.such", Retention()),
        case.begin_retention("no.such"),
        case.estimate_retention("no.such", Retention(events=1)),
    ):
        with pytest.raises(NamespaceNotFound):
            await asked
    with pytest.raises(InvalidRequest):
        await case.set_retention(NS, 90)  # type: ignore[arg-type] # a slip
    assert not (await case.retention(NS)).is_set


@pytest.mark.parametrize(
    ("field", "kept"),
    [
        ("tasks", {"tasks": timedelta(minutes=59)}),
        ("tasks", {"tasks": timedelta(days=3651)}),
        ("keys", {"keys": DAY}),
        ("keys", {"tasks": 2 * DAY, "keys": DAY}),
        ("events", {"events": 0}),
        ("events", {"events": timedelta(minutes=1)}),
        ("event", {"event": 1}),
    ],
)
def test_a_retention_that_cannot_be(field: str, kept: dict[str, Any]) -> None:
    """It names what is wrong."""
    with pytest.raises(InvalidRequest) as caught:
        Retention(**kept)
    assert (caught.value.field or "").startswith(field)
