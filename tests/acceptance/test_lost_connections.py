"""Connections die, one or all; work goes on, and no step is lost or doubled."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from progressor import Client
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import NS, Act, Scripted, until
from tests.support import Tables

HOUR = timedelta(hours=1)
LISTENERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'progressor listener'
        AND query LIKE 'LISTEN%%' AND state = 'idle'
"""
TERMINATE_ALL = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
only_with_signals = pytest.mark.parametrize("mode", ["signals"], indirect=True)


@pytest.fixture
def listeners(tables: Tables) -> Callable[[], Awaitable[set[int]]]:
    """The backends that listen."""

    async def read() -> set[int]:
        return {row["pid"] for row in tables.execute(LISTENERS)}

    return read


@only_with_signals
async def test_hints_alone_carry_the_work(
    engine: MakeEngine, client: MakeClient, listeners: Callable[[], Awaitable[set[int]]]
) -> None:
    """With scans and polls an hour apart, wake and reply hints do it alone."""
    await engine(Scripted().namespace, scan_interval=HOUR)
    dispatcher = await client(reply_poll_interval=HOUR)
    await until(listeners, lambda pids: len(pids) == 2)
    assert await dispatcher.start(NS, "p", Act(add=1)) == 1
    assert await dispatcher.call(NS, "p", "act", Act(add=1)) == 2


@only_with_signals
async def test_a_dead_listener_is_made_anew(
    engine: MakeEngine,
    client: MakeClient,
    tables: Tables,
    listeners: Callable[[], Awaitable[set[int]]],
) -> None:
    """A LISTEN connection that dies is replaced, and hints arrive again."""
    await engine(Scripted().namespace, scan_interval=HOUR)
    dispatcher = await client(reply_poll_interval=HOUR)
    before = await until(listeners, lambda pids: len(pids) == 2)
    tables.execute(f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) AS listener")
    await until(listeners, lambda pids: len(pids - before) == 2)
    assert await dispatcher.start(NS, "p", Act(add=1)) == 1


@only_with_signals
async def test_an_answer_given_while_nobody_listened_is_found(
    engine: MakeEngine, client: MakeClient, tables: Tables
) -> None:
    """A reply hint that found no listener costs nothing: who listens again looks first."""
    scripted = Scripted()
    await engine(scripted.namespace)
    dispatcher = await client(reply_poll_interval=HOUR)
    starting = asyncio.create_task(dispatcher.start(NS, "p", Act(add=1, gate="g")))
    await scripted.gates["g"].entered()
    tables.execute(f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) AS listener")
    scripted.gates["g"].open()
    async with asyncio.timeout(30):
        assert await starting == 1


async def test_every_connection_dies_under_load(serve: MakeClient, tables: Tables) -> None:
    """Whatever connections die under load, each call runs once, and each caller gets its answer."""
    scripted = Scripted(concurrency=8)
    client = await serve(scripted.namespace)
    names = [f"p{number}" for number in range(6)]
    await asyncio.gather(*(client.start(NS, name, Act()) for name in names))
    answered = 0

    async def ask(client: Client, name: str) -> list[int]:
        nonlocal answered
        answers = []
        for _ in range(20):
            answers.append(await client.call(NS, name, "act", Act(add=1, emit="added")))
            answered += 1
        return answers

    async def kill() -> None:
        for round_ in range(1, 6):
            await until(count, lambda count, least=round_ * 35: count >= least)
            tables.execute(TERMINATE_ALL)

    async def count() -> int:
        return answered

    killing = asyncio.create_task(kill())
    answers = await asyncio.gather(*(ask(client, name) for name in names for _ in range(2)))
    await killing
    for place, name in enumerate(names):
        assert sorted(answers[2 * place] + answers[2 * place + 1]) == list(range(1, 41))
        process = await client.get(NS, name)
        assert [event.event_id for event in process.history] == list(range(1, 41))
        assert [event.payload["balance"] for event in process.history] == list(range(1, 41))
    assert scripted.overlaps == []
