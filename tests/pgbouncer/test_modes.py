"""PgBouncer's modes: what works in which, and what is found out at the start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from progressor import Client, Engine, InvalidRequest, StorageUnavailable, SyncClient
from progressor.cli import doctor
from progressor.deployment.settings import Settings
from progressor.loggers import message_of
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


async def test_a_listener_of_its_own_hears_past_the_pooler(dsn: str, pooled: str) -> None:
    """All else goes through the pool, and an answer comes by a hint: no poll and no scan brings it."""
    options = {"listen_database_url": dsn, "reply_poll_interval": timedelta(hours=1)}
    engine = Engine(pooled, [Scripted().namespace], scan_interval=timedelta(hours=1), **options)
    async with engine, Client(pooled, **options) as client:
        await client.start(NS, "p", Act(add=1), timeout=30)
        assert await client.call(NS, "p", "act", Act(add=1), timeout=30) == 2
        with psycopg.connect(dsn) as other:
            named = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
            assert other.execute(named + "application_name = 'progressor listener'").fetchone() == (2,)


async def test_a_listener_must_be_past_the_pooler(pooled: str) -> None:
    """One that is in it hears nothing, and is refused by its name."""
    with pytest.raises(InvalidRequest, match="past the pooler") as caught:
        async with Client(pooled, listen_database_url=pooled):
            pass
    assert caught.value.field == "listen_database_url"


async def test_a_lost_way_of_the_listener_takes_nothing_else(dsn: str, pooled: str) -> None:
    """Its sessions are ended, it listens anew, and answers come by hints again."""
    options = {"listen_database_url": dsn, "reply_poll_interval": timedelta(hours=1)}
    async with Engine(pooled, [Scripted().namespace], **options), Client(pooled, **options) as client:
        await client.start(NS, "p", Act(), timeout=30)
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'progressor listener'"
            )
        assert await client.call(NS, "p", "act", Act(add=1), timeout=60) == 1


def test_the_doctor_warns_of_a_pooler(dsn: str, pooled: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be heard it logs what to set; with a listener past the pooler, nothing."""
    doctor._look_at_sessions(pooled, Settings(listen_database_url=dsn))
    assert caplog.records == []
    doctor._look_at_sessions(pooled, Settings())
    (line,) = caplog.records
    assert (line.levelname, message_of(line)) == ("WARNING", "signals cannot work")
    assert "PROGRESSOR_LISTEN_DATABASE_URL" in vars(line)["reason"]


async def test_a_way_past_the_pooler_to_another_database(pooled: str, server: str) -> None:
    """Heartbeats would go there, and this worker look dead here: it does not start."""
    elsewhere = make_conninfo(server, dbname="postgres")
    for entered in (
        Client(pooled, listen_database_url=elsewhere),
        Engine(pooled, [Scripted().namespace], listen_database_url=elsewhere),
    ):
        with pytest.raises(StorageUnavailable, match="leads to another database"):
            async with entered:
                pass
