"""What is under way when a client is closed, or its time is over, beside a server that says nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from progressor import Client, ReplyTimeout, StorageUnavailable, SyncClient
from progressor.storage import signals as signals_module
from progressor.storage.connections import Connections
from progressor.storage.operations import Storage
from progressor.storage.signals import Signals
from tests.support import NS, Tables, eventually, start

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
    connections = Connections(dsn, limit=2)
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


async def test_a_read_is_within_the_timeout(dsn: str, known: Tables) -> None:
    """`get` waits no longer than it was told to, whatever it waits for."""
    async with Client(dsn) as client:
        with silent(known, "processes"), pytest.raises(ReplyTimeout):
            await asyncio.wait_for(client.get(NS, "p1", timeout=SHORT), IN_TIME)


async def test_last_hints_do_not_hold_up_who_leaves(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hints that a silent server does not take are lost: whoever waits for them finds out by looking."""
    monkeypatch.setattr(signals_module, "_LAST_WORDS", SHORT)
    connections = Connections(dsn, limit=1)
    signals = Signals(
        Storage(connections, patience=timedelta(seconds=30)), dsn, 1,
        on_wake=lambda *_: None, on_replies=lambda _: None, on_gap=lambda: None,
    )  # fmt: skip
    async with connections.acquire():
        # Its only connection is in use, so nothing can be said.
        signals.wake(2, NS, "calls")
        await asyncio.wait_for(signals.stop(), IN_TIME)
    await connections.close()
