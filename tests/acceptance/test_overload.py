"""More is asked than PostgreSQL takes: who waits too long is told, and what was not sent never runs.

Rule: nothing is fused, so that calls and notifies wait behind the same two flights.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from progressor import Client, StorageUnavailable
from progressor.storage import group_commit
from progressor.storage.group_commit import Room
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import NS, Act, Scripted
from tests.support import Tables, eventually


async def started(client: Client) -> None:
    for name in ("p1", "p2", "p3"):
        await client.start(NS, name, Act())


@asynccontextmanager
async def nothing_leaves(client: Client, tables: Tables) -> AsyncIterator[list[asyncio.Task[int]]]:
    """Two calls wait for locks, one in each flight, and what else is called waits behind them."""
    sent = []
    with tables.connection.transaction():
        tables.execute("SELECT FROM processes WHERE process_id IN ('p1', 'p2') FOR UPDATE")
        for name in ("p1", "p2"):
            sent.append(asyncio.create_task(client.call(NS, name, "act", Act(add=1))))
            await eventually(lambda: len(tables.waiting()) == len(sent), "the call waits for its lock")
        yield sent


async def test_a_call_that_was_not_sent_in_time_never_runs(serve: MakeClient, tables: Tables) -> None:
    """The caller hears StorageUnavailable; the call does not run when PostgreSQL goes on; a notify does."""
    client = await serve(Scripted().namespace, fuse="never")
    await started(client)
    async with nothing_leaves(client, tables) as sent:
        with pytest.raises(StorageUnavailable):
            await client.call(NS, "p3", "act", Act(add=1), timeout=0.1)
        leaving = asyncio.create_task(client.call(NS, "p3", "act", Act(add=1)))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(StorageUnavailable):
            await client.notify(NS, "p3", "act", Act(add=10), timeout=0.1)
    assert await asyncio.gather(*sent) == [1, 1]
    notified = "SELECT task_id FROM tasks WHERE task_type = 'notify'"
    await eventually(lambda: len(tables.execute(notified)) == 1, "the notify is accepted")
    assert await client.call(NS, "p3", "act", Act(add=100)) == 110
    assert [entry.name for entry in await client.trace(NS, "p3")] == [None, "act", "act"]


async def test_slots_of_withdrawn_calls_are_free_again(serve: MakeClient, tables: Tables) -> None:
    """Calls that never left hold no slot of the worker in whose process they were made."""
    client = await serve(Scripted(concurrency=3).namespace, fuse="never")
    await started(client)
    async with nothing_leaves(client, tables) as sent:
        for _ in range(5):
            with pytest.raises(StorageUnavailable):
                await client.call(NS, "p3", "act", Act(add=1), timeout=0.05)
    assert await asyncio.gather(*sent) == [1, 1]
    three = [client.call(NS, name, "act", Act(add=1)) for name in ("p1", "p2", "p3")]
    assert await asyncio.gather(*three) == [2, 2, 1]


async def test_overloaded(serve: MakeClient, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the room for what waits, a request is refused at once; what waits is done."""
    monkeypatch.setattr(group_commit, "REQUESTS", Room(items=2, size=1 << 20))
    client = await serve(Scripted().namespace, fuse="never")
    await started(client)
    async with nothing_leaves(client, tables) as sent:
        sent += [asyncio.create_task(client.call(NS, "p3", "act", Act(add=1))) for _ in range(2)]
        await asyncio.sleep(0)
        for ask in (client.call, client.notify):
            with pytest.raises(StorageUnavailable, match=r"^overloaded: 2 requests .* nothing was written"):
                await ask(NS, "p3", "act", Act(add=1))
    assert sorted(await asyncio.gather(*sent)) == [1, 1, 1, 2]
    assert await client.call(NS, "p3", "act", Act(add=1)) == 3
