"""What is under way when a client is closed, or its time is over, beside a server that says nothing."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from progressor import Client, ReplyTimeout, StorageUnavailable, SyncClient
from progressor.client.dispatch import dispatcher as asking_module
from progressor.model import Reply, Snapshot
from progressor.node import node
from progressor.storage import notifications as signals_module
from progressor.storage.notifications import Signals
from progressor.storage.operations import Storage
from progressor.storage.postgres.pool import SessionPool
from tests.support import NS, Tables, events, eventually, hold, init, resume, save, start

SHORT = 0.05
IN_TIME = 30


@pytest.fixture
def known(tables: Tables) -> Tables:
    tables.set_namespace()
    return tables


@contextmanager
def silent(tables: Tables, table: str) -> Iterator[None]:
    """PostgreSQL does not answer what asks for this table."""
    tables.execute("BEGIN")
    tables.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")  # type: ignore[arg-type]
    try:
        yield
    finally:
        tables.execute("ROLLBACK")


async def _somebody_waits_for(tables: Tables, table: str) -> None:
    held_up = "SELECT pid FROM pg_locks WHERE relation = %s::regclass AND NOT granted"
    await eventually(lambda: tables.execute(held_up, table), "somebody waits")


async def test_a_thread_that_waits_hears_of_the_close(storage: Storage, dsn: str, known: Tables) -> None:
    """Nothing will answer what is under way on a loop that ends: it gets an error."""
    await start(storage)
    client = SyncClient(dsn)
    with silent(known, "processes"):
        waiting = asyncio.create_task(asyncio.to_thread(client.remove, NS, "p1"))
        await _somebody_waits_for(known, "processes")
        await asyncio.to_thread(client.close)
        await asyncio.wait([waiting], timeout=IN_TIME)
        assert waiting.done()
    with pytest.raises(StorageUnavailable, match="closed"):
        await waiting


async def test_a_connection_that_comes_back_too_late_is_closed(dsn: str) -> None:
    """What is in use at the close is closed by its user, and not kept."""
    connections = SessionPool(dsn, limit=2)
    async with connections.acquire() as session:
        await connections.close()
        assert not session.is_lost
    assert session.is_lost


async def test_the_look_at_the_namespace_is_within_the_timeout(dsn: str, known: Tables) -> None:
    """A caller's time covers all that is done for it."""
    async with Client(dsn) as client:
        with silent(known, "namespaces"):
            for ask in (client.call, client.notify):
                with pytest.raises(StorageUnavailable, match="idempotency_key"):
                    await asyncio.wait_for(ask(NS, "p1", "pay", timeout=SHORT), IN_TIME)
            with pytest.raises(StorageUnavailable, match="idempotency_key"):
                await asyncio.wait_for(client.simple_repair(NS, "p1", timeout=SHORT), IN_TIME)


@asynccontextmanager
async def mute() -> AsyncIterator[str]:
    """The address of a server that takes connections, and says nothing."""
    over = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    try:
        yield f"postgresql://nobody@127.0.0.1:{server.sockets[0].getsockname()[1]}/nothing"
    finally:
        over.set()
        server.close()


async def _out_of_time(asking: Awaitable[object]) -> None:
    with pytest.raises(StorageUnavailable, match="did not answer within"):
        await asyncio.wait_for(asking, IN_TIME)


async def test_a_read_is_within_the_timeout(dsn: str, known: Tables) -> None:
    """`get` waits no longer than it was told to; what it has not seen, it says nothing of."""
    async with Client(dsn) as client:
        with silent(known, "processes"):
            await _out_of_time(client.get(NS, "p1", timeout=SHORT))


async def test_the_history_is_within_the_timeout(storage: Storage, dsn: str, known: Tables) -> None:
    """A process that was read and is not in its init has no task that goes on."""
    await start(storage, decision=resume(events=events(1)))
    async with Client(dsn) as client:
        with silent(known, "events"):
            await _out_of_time(client.get(NS, "p1", timeout=SHORT))


async def test_an_init_that_was_seen_goes_on(
    storage: Storage, dsn: str, known: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `get` says so, also if PostgreSQL is silent by then."""
    await hold(storage, init())
    async with Client(dsn) as client:
        reads = await client._node.reads()
        getting = asyncio.create_task(client.get(NS, "p1", timeout=1))
        read, seen = reads.process, asyncio.Event()

        async def reading(*wanted: Any) -> Snapshot | None:
            snapshot = await read(*wanted)
            seen.set()
            return snapshot

        monkeypatch.setattr(reads, "process", reading)
        await asyncio.wait_for(seen.wait(), IN_TIME)
        with (
            silent(known, "processes"),
            pytest.raises(ReplyTimeout, match="ask again; no live") as told,
        ):
            await asyncio.wait_for(getting, IN_TIME)
    assert (told.value.idempotency_key, told.value.task_id) == (None, None)


async def test_a_connection_is_within_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks first, of a server that says nothing, is told in time that it is that."""
    monkeypatch.setattr(asking_module, "_LOOK_SECONDS", SHORT)
    async with mute() as dsn:
        client, blocking = Client(dsn), SyncClient(dsn)
        await _out_of_time(client.get(NS, "p1", timeout=SHORT))
        await _out_of_time(client.result(NS, "p1", 1, timeout=SHORT))
        await _out_of_time(asyncio.to_thread(blocking.get, NS, "p1", timeout=SHORT))
        await _out_of_time(asyncio.to_thread(blocking.result, NS, "p1", 1, timeout=SHORT))
        await client.close()
        await asyncio.to_thread(blocking.close)


async def test_the_look_at_a_task_is_within_the_timeout(
    storage: Storage, dsn: str, known: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`result` waits no longer than it was told to, or than a look takes; a task that was seen goes on."""
    monkeypatch.setattr(asking_module, "_LOOK_SECONDS", SHORT)
    task_id = (await hold(storage, init())).task.task_id
    async with Client(dsn) as client:
        for table in ("tasks", "namespaces"):
            with silent(known, table):
                await _out_of_time(client.result(NS, "p1", task_id, timeout=SHORT))
        with pytest.raises(ReplyTimeout) as told:
            await asyncio.wait_for(client.result(NS, "p1", task_id, timeout=1), IN_TIME)
    assert told.value.task_id == task_id


async def test_an_answer_that_is_there_needs_no_time(storage: Storage, dsn: str, known: Tables) -> None:
    """Whoever does not want to wait is given what a short look finds."""
    step = await hold(storage, init())
    await save(storage, step, resume(reply=Reply(response=b'"answer"')))
    async with Client(dsn) as client:
        assert await client.result(NS, "p1", step.task.task_id, timeout=1e-6) == "answer"


async def test_last_hints_do_not_hold_up_who_leaves(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hints that a silent server does not take are lost: whoever waits for them finds out by looking."""
    monkeypatch.setattr(signals_module, "_LAST_WORDS", SHORT)
    connections = SessionPool(dsn, limit=1)
    signals = Signals(
        Storage(connections, patience=timedelta(seconds=30)), dsn, 1,
        on_wake=lambda *_: None, on_replies=lambda _: None, on_gap=lambda: None,
        on_follow=lambda _: None,
        on_feed=lambda: None,
    )  # fmt: skip
    async with connections.acquire():
        # Its only connection is in use, so nothing can be said.
        signals.wake(2, NS, "calls")
        await asyncio.wait_for(signals.stop(), IN_TIME)
    await connections.close()


async def test_reads_that_come_when_the_client_has_closed_keep_no_connection(
    storage: Storage, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are imported in a thread meanwhile; what they open is closed when it is given back."""
    await hold(storage, init())
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def imported(_name: str) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(IN_TIME)

    monkeypatch.setattr(node, "import_module", imported)
    client = Client(dsn)
    await client.__aenter__()
    reading = asyncio.create_task(client._node.reads())
    await asyncio.wait_for(begun.wait(), IN_TIME)
    await client.close()
    go_on.set()
    reads = await reading
    assert await reads.process(NS, "p1") is not None
    assert reads._connections._idle == []
