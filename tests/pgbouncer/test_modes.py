"""PgBouncer's modes: what works in which, and what is found out at the start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from progressor import Client, Engine, InvalidRequest, SyncClient
from progressor.storage import migrations
from progressor.storage.doctor import examine
from tests.acceptance.conftest import MODES
from tests.acceptance.support import NS, Act, Scripted
from tests.pgbouncer.conftest import PgBouncer, pgbouncer
from tests.support import check_invariants


@pytest.fixture
def pooled(dsn: str, pooler: PgBouncer) -> Iterator[str]:
    """A database through a pooler in transaction mode."""
    yield pooler.dsn(dsn)
    check_invariants(dsn)


async def test_signals_are_refused_in_transaction_mode(pooled: str) -> None:
    """Client and engine find out that sessions are lent, and say what to set."""
    for entered in (Client(pooled), Engine(pooled, [Scripted().namespace])):
        with pytest.raises(InvalidRequest, match="PROGRESSOR_SIGNALS=false") as caught:
            async with entered:
                pass
        assert caught.value.field == "signals"


async def test_signals_are_refused_while_others_use_the_pool(pooled: str) -> None:
    """The sessions change hands all the time, and that is found out too."""
    async with Engine(pooled, [Scripted().namespace], **MODES["scanning"]) as engine:
        busy = [asyncio.create_task(engine.client.start(NS, f"p{place}", Act())) for place in range(50)]
        with pytest.raises(InvalidRequest):
            async with Client(pooled):
                pass
        await asyncio.gather(*busy)


def test_signals_are_refused_to_the_sync_client(pooled: str) -> None:
    """At its first use."""
    with pytest.raises(InvalidRequest, match="PROGRESSOR_SIGNALS"), SyncClient(pooled) as client:
        client.search()


async def test_signals_work_in_session_mode(dsn: str, server: str) -> None:
    """There a session belongs to one connection for as long as it lasts."""
    with pgbouncer(server, "session", size=30) as pooler:
        through = pooler.dsn(dsn)
        async with Engine(through, [Scripted().namespace]), Client(through) as client:
            await client.start(NS, "p", Act(add=1))
            assert await client.call(NS, "p", "act", Act(add=1)) == 2
    check_invariants(dsn)


async def test_one_session_for_everything(dsn: str, server: str) -> None:
    """However few sessions there are to lend, work goes on."""
    with pgbouncer(server, "transaction", size=1) as pooler:
        options = MODES["scanning"]
        async with Engine(pooler.dsn(dsn), [Scripted().namespace], **options) as engine:
            await engine.client.start(NS, "p", Act())
            calls = (engine.client.call(NS, "p", "act", Act(add=1)) for _ in range(20))
            assert sorted(await asyncio.gather(*calls)) == list(range(1, 21))
    check_invariants(dsn)


async def test_nothing_is_left_behind_for_others(dsn: str, server: str) -> None:
    """Engine, heartbeat, reads, migrations and doctor leave a session to others as they found it."""
    shown = "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name <> 'application_name'"
    with pgbouncer(server, "transaction", size=1) as pooler:
        through = pooler.dsn(dsn)
        with psycopg.connect(through, autocommit=True) as other:
            before = other.execute(shown).fetchall()
            async with Engine(through, [Scripted().namespace], **MODES["scanning"]) as engine:
                await engine.client.start(NS, "p", Act())
                await engine.client.get(NS, "p")
                with pytest.raises(InvalidRequest):
                    await engine.client.put(NS, "p" * 1000)
            await asyncio.to_thread(migrations.upgrade, through)
            assert (await asyncio.to_thread(examine, through)).is_clean
            assert other.execute(shown).fetchall() == before
            assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_migrations(empty_dsn: str, pooler: PgBouncer) -> None:
    """They need no session of their own."""
    through = pooler.dsn(empty_dsn)
    assert migrations.upgrade(through) == (None, migrations.head())
    migrations.check(through)
    assert examine(through).is_clean
