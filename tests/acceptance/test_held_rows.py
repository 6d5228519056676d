"""Rows that another session keeps locked, as psql in an open transaction: only their processes wait."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from progressor import BulkStatus, Client, HandlerFailed, Namespace, Process
from progressor.storage.postgres import session_setup
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import NS, Act, Scripted, until
from tests.support import Tables, eventually

HELD = ("p1", "p2")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session waits for a lock for a part of a second, not for ten."""
    for bounds in (session_setup.BOUNDED_SESSION, session_setup.BOUNDED_TRANSACTION):
        monkeypatch.setitem(bounds, "lock_timeout", "200ms")  # type: ignore[arg-type]  # a dict


@contextmanager
def held(tables: Tables) -> Iterator[None]:
    with tables.connection.transaction():
        tables.execute("SELECT FROM processes WHERE process_id = ANY(%s) FOR UPDATE", list(HELD))
        yield


async def started(client: Client) -> None:
    for name in (*HELD, "p3"):
        await client.start(NS, name, Act())


async def others_go_on(client: Client) -> None:
    async with asyncio.timeout(20):
        for number in range(1, 31):
            assert await client.call(NS, "p3", "act", Act(add=1)) == number


async def test_requests_of_others_go_on(serve: MakeClient, tables: Tables) -> None:
    """Two calls wait for locks in both flights, and more come to them; all are done in the end, once."""
    client = await serve(Scripted().namespace)
    await started(client)
    asked = []
    with held(tables):
        for name in HELD:
            asked.append(asyncio.create_task(client.call(NS, name, "act", Act(add=1))))
            await eventually(tables.waiting, "a call waits for its lock")
        asked += [asyncio.create_task(client.call(NS, name, "act", Act(add=1))) for name in 5 * HELD]
        await others_go_on(client)
        assert not any(call.done() for call in asked)
    answers = await asyncio.gather(*asked)
    assert sorted(answers[::2]) == sorted(answers[1::2]) == [1, 2, 3, 4, 5, 6]


async def test_steps_of_others_are_saved(serve: MakeClient, tables: Tables) -> None:
    """Two steps end on held processes: their saves wait, and no other one does."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await started(client)
    asked = [asyncio.create_task(client.call(NS, name, "act", Act(add=1, gate="g"))) for name in HELD]
    await scripted.gates["g"].entered(by=2)
    # Committed as running: until then their transaction has the locks.
    await eventually(lambda: len(tables.execute("SELECT task_id FROM running")) == 2, "both steps run")
    with held(tables):
        scripted.gates["g"].open()
        await eventually(tables.waiting, "a step waits for its lock")
        await others_go_on(client)
        assert not any(call.done() for call in asked)
    assert await asyncio.gather(*asked) == [1, 1]
    assert [name for name, kind in scripted.ran if kind == "call" and name in HELD] == list(HELD)


async def test_starts_of_others_go_on(serve: MakeClient, tables: Tables) -> None:
    """Somebody else is about to make two processes: starts of these wait, and no other ones."""
    client = await serve(Scripted().namespace)
    await started(client)
    with tables.connection.transaction():
        tables.execute(
            "INSERT INTO processes (namespace_no, process_id, created_at, status, status_changed_at) "
            "SELECT namespace_no, unnest(%s::text[]), now(), 'init', now() "
            "FROM namespaces WHERE name = %s",
            ["n1", "n2"],
            NS,
        )
        asked = []
        for name in ("n1", "n2"):
            asked.append(asyncio.create_task(client.start(NS, name, Act(add=1))))
            await eventually(tables.waiting, "a start waits for the other's end")
        async with asyncio.timeout(20):
            for number in range(10):
                assert await client.start(NS, f"q{number}", Act(add=1)) == 1
        assert not any(start.done() for start in asked)
        tables.execute("DELETE FROM processes WHERE process_id IN ('n1', 'n2')")
    assert await asyncio.gather(*asked) == [1, 1]


async def test_a_request_that_waits_holds_no_slot(serve: MakeClient, tables: Tables) -> None:
    """In a namespace of one slot a call of a held process waits; other calls and timers run meanwhile."""
    client = await serve(Scripted(concurrency=1).namespace)
    await started(client)
    with held(tables):
        asked = asyncio.create_task(client.call(NS, "p1", "act", Act(add=1)))
        await eventually(tables.waiting, "the call waits for its lock")
        await client.call(NS, "p3", "act", Act(after=0, then=Act(add=1)))
        await until(lambda: client.get(NS, "p3"), lambda found: found.state.balance == 1)
        assert await client.call(NS, "p3", "act", Act(add=1)) == 2
        assert not asked.done()
    assert await asked == 1


async def test_messages_to_others_go_on(serve: MakeClient, tables: Tables) -> None:
    """A message to a held process is tried again later, and those behind it are delivered meanwhile."""
    scripted = Scripted()
    sender = Namespace("bank.sender")

    @sender.init
    async def send(process: Process[None]) -> None:
        process.send(NS, "p1", "act", Act(add=5))
        process.send(NS, "p3", "act", Act(add=5))

    client = await serve(scripted.namespace, sender)
    await started(client)
    with held(tables):
        for number in range(3):
            await client.start("bank.sender", f"s{number}")
        await until(lambda: client.get(NS, "p3"), lambda found: found.state.balance == 15)
    await until(lambda: client.get(NS, "p1"), lambda found: found.state.balance == 15)
    assert sorted(name for name, kind in scripted.ran if kind == "call") == 3 * ["p1"] + 3 * ["p3"]


async def test_a_bulk_waits_for_its_process_and_others_go_on(serve: MakeClient, tables: Tables) -> None:
    """It tells whom it waits for, begins none behind it, and repairs all once the lock is given back."""
    client = await serve(Scripted().namespace, Scripted("bank.other").namespace)
    for namespace in (NS, "bank.other"):
        for name in (*HELD, "p3"):
            await client.start(namespace, name, Act(after=60))
            with pytest.raises(HandlerFailed):
                await client.call(namespace, name, "act", Act(fail="a bug"))
    with tables.connection.transaction():
        tables.execute(
            "SELECT FROM processes JOIN namespaces USING (namespace_no) "
            "WHERE name = %s AND process_id = 'p2' FOR UPDATE OF processes",
            NS,
        )
        stuck = await client.repair_all(NS, simple=True, rate=1000)
        other = await client.repair_all("bank.other", simple=True, rate=1000)
        ended = await until(lambda: client.bulk(other.bulk_id), lambda bulk: bulk.status.is_final)
        assert (ended.status, ended.repaired) == (BulkStatus.FINISHED, 3)
        waits = await until(lambda: client.bulk(stuck.bulk_id), lambda bulk: bulk.last_error)
        assert waits.last_error is not None
        assert waits.last_error.startswith("p2: it is locked")
        assert (waits.status, waits.repaired, waits.passed_by) == (BulkStatus.RUNNING, 1, 0)
    ended = await until(lambda: client.bulk(stuck.bulk_id), lambda bulk: bulk.status.is_final)
    assert (ended.repaired, ended.passed_by) == (3, 0)
