"""Roles and databases with settings of their own: every session says itself what it relies on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import func, select

from progressor import (
    Client,
    Engine,
    HistoryRange,
    Namespace,
    Process,
    ProcessNotFound,
    ProcessStatus,
    RetryPolicy,
    SetTimer,
)
from progressor.storage import migrations
from progressor.storage.doctor import checks, examine
from progressor.storage.heartbeats import Beats
from progressor.storage.operations import Storage
from progressor.storage.postgres import session_setup
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.queries.reads import Reads
from progressor.storage.statements import STATEMENTS
from tests.acceptance.support import until
from tests.storage.test_races import Race
from tests.support import (
    NS,
    SECOND,
    check_invariants,
    claim_calls,
    hold,
    refuse,
    request,
    resume,
    save,
    start,
)

# What an operator may set for a role or a database, for reasons of his own.
_ODD = {
    "default_transaction_isolation": "repeatable read",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "client_encoding": "LATIN1",
    "statement_timeout": "1s",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1s",
    "idle_session_timeout": "300ms",
    "transaction_timeout": "1s",
    "array_nulls": "off",
    "gin_fuzzy_search_limit": "10",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "DateStyle": "German",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Asia/Kolkata",
}
_STATED = {
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "client_encoding": "UTF8",
    "statement_timeout": "1min",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "15s",
    "idle_session_timeout": "0",
    "array_nulls": "on",
    "gin_fuzzy_search_limit": "0",
    "quote_all_identifiers": "off",
    "DateStyle": "ISO, DMY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
}
_UNBOUNDED = _STATED | dict.fromkeys(
    ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"), "0"
)
_SHOWN = "jsonb_build_object(" + ", ".join(f"'{name}', current_setting('{name}')" for name in _STATED) + ")"


def odd(dsn: str, settings: dict[str, str]) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        known = {name for (name,) in connection.execute("SELECT name FROM pg_settings").fetchall()}
        if connection.info.server_version >= 190000:
            # It is there, and cannot be off any more.
            known.remove("standard_conforming_strings")
        for name, value in settings.items():
            # transaction_timeout is of PostgreSQL 17.
            if name in known:
                connection.execute("SET default_transaction_read_only = off")
                connection.execute(
                    sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                        database, sql.Identifier(name), sql.Literal(value)
                    )
                )


@pytest.fixture
def odd_dsn(dsn: str) -> Iterator[str]:
    """A database in which all of it is set."""
    odd(dsn, _ODD)
    yield dsn
    check_invariants(dsn)


@pytest.fixture(params=[True, False], ids=["session", "stateless"])
def keeps_state(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_operations(odd_dsn: str, keeps_state: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sessions of operations, in one round trip and in several."""
    monkeypatch.setitem(STATEMENTS, "shown", f"SELECT {_SHOWN}::text AS shown")
    connections = SessionPool(odd_dsn, limit=1, session_state=keeps_state)
    async with connections.acquire() as session:
        (row,) = (await session.transact({"shown": {}}))["shown"]
        assert json.loads(row["shown"]) == _STATED
        async with session.transaction():
            (row,) = (await session.transact({"shown": {}}))["shown"]
            assert json.loads(row["shown"]) == _STATED
    await connections.close()


async def test_a_stateless_session_leaves_nothing_behind(odd_dsn: str) -> None:
    """What a transaction states ends with it, be it committed or refused: a pooler lends it to others."""
    connections = SessionPool(odd_dsn, limit=1, session_state=False)
    async with connections.acquire() as session:
        await session.transact({"namespace_names": {}})
        with pytest.raises(psycopg.DataError):
            await session.transact({"one_claim": {"lease": "no number"}})
        assert session.is_idle
        (row,) = await _settings_outside(session)
        assert row == ("1s", "repeatable read")
    await connections.close()


async def _settings_outside(session: Any) -> list[tuple[str, str]]:
    session._pgconn.exit_pipeline_mode()
    cursor = await session._connection.execute(
        "SELECT current_setting('statement_timeout'), current_setting('transaction_isolation')"
    )
    found: list[tuple[str, str]] = await cursor.fetchall()
    session._pgconn.enter_pipeline_mode()
    return found


async def test_reads(odd_dsn: str, keeps_state: bool) -> None:
    """The sessions of reads."""
    reads = Reads(odd_dsn, patience=SECOND, session_state=keeps_state)
    pairs = [each for name in _STATED for each in (name, func.current_setting(name))]
    (row,) = await reads._rows(select(func.jsonb_build_object(*pairs).label("shown")))
    assert row["shown"] == _STATED
    await reads.close()


async def test_listeners(odd_dsn: str) -> None:
    """The session that listens is idle most of the time, and nothing ends it for that."""
    async with await session_setup.connect(odd_dsn, "progressor listener", keeps_state=True) as connection:
        cursor = await connection.execute(f"SELECT {_SHOWN}".encode())
        assert await cursor.fetchone() == (_STATED,)


def test_heartbeats(odd_dsn: str, keeps_state: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of a heartbeat."""
    with psycopg.connect(odd_dsn, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("CREATE TABLE public.seen (shown jsonb)")
        monkeypatch.setitem(STATEMENTS, "seen", f"INSERT INTO public.seen SELECT {_SHOWN}")
        beats = Beats(
            odd_dsn,
            worker_id=1,
            host="here",
            namespaces={},
            lease_age=15 * SECOND,
            session_state=keeps_state,
        )
        beats._execute("seen", {})
        beats.beat({}, {})
        beats.close()
        assert connection.execute("SELECT shown FROM public.seen").fetchall() == [(_STATED,)]


def test_migrations(odd_dsn: str) -> None:
    """Migrations state the same, but nothing bounds how long they take."""
    with migrations.connect(odd_dsn) as connection, connection.begin():
        assert connection.exec_driver_sql(f"SELECT {_SHOWN}").scalar_one() == _UNBOUNDED


def test_the_doctor(odd_dsn: str) -> None:
    """So does the doctor, who reads one snapshot, and only reads."""
    query = (
        f"SELECT NULL AS namespace, NULL AS process_id, NULL::bigint AS task_id, {_SHOWN}::text AS found"
    )
    (found,) = checks.run(odd_dsn, [checks.Check("shown", "", "", query)], {}, most=1)
    wanted = {"transaction_isolation": "repeatable read", "transaction_read_only": "on"}
    assert json.loads(found.findings[0].found) == _UNBOUNDED | wanted


def test_migrating(empty_dsn: str) -> None:
    """A schema is made in such a database, examined, and unmade."""
    odd(empty_dsn, _ODD)
    assert migrations.upgrade(empty_dsn) == (None, migrations.head())
    assert examine(empty_dsn).is_clean
    assert migrations.upgrade(empty_dsn, "base") == (migrations.head(), None)


def shop() -> Namespace:
    """Something of everything: events, timers, retries, texts that LATIN1 does not have."""
    shop = Namespace(
        NS,
        history=HistoryRange(),
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10)),
    )

    @shop.init
    async def open_(process: Process[int], args: str) -> None:
        process.emit("opened", name=args)
        process.set_timer(after=timedelta(0))

    @shop.timeout
    async def fire(process: Process[int]) -> None:
        if process.task.attempts_count == 0:
            raise ValueError("żółw")
        process.emit("fired")

    @shop.call
    async def names(process: Process[int], args: None) -> list[str | None]:
        return [event.name for event in process.history]

    @shop.call
    async def outlast(process: Process[int], *, connection: psycopg.AsyncConnection[Any]) -> str:
        # For longer than any time-out of the database.
        await connection.execute("SELECT pg_sleep(1.3)")
        return "done"

    return shop


@pytest.mark.parametrize("signals", [True, False], ids=["signals", "scanning"])
async def test_everything_works(odd_dsn: str, signals: bool) -> None:
    """Requests, timers, retries, histories, traces, searches and imports, with pauses between them."""
    options: dict[str, Any] = {"signals": signals}
    async with (
        Engine(odd_dsn, [shop()], scan_interval=SECOND / 10, **options),
        Client(odd_dsn, **options) as client,
    ):
        tortoise = client.process(NS, "żółw")
        await tortoise.start("żółw 🐢")
        await until(tortoise.get, lambda process: process.last_event_id == 2)
        assert await tortoise.call("names") == ["opened", "fired"]
        assert (await tortoise.get()).history[0].payload == {"name": "żółw 🐢"}
        timer = (await tortoise.trace())[1]
        assert (timer.last_retry_interval, timer.attempts_count) == (timedelta(milliseconds=10), 1)
        await client.put(
            NS, "old", metadata={"name": "żółw"}, action=SetTimer(at=datetime(2030, 1, 31, tzinfo=UTC))
        )
        assert (await client.trace(NS, "old"))[-1].status == "waiting"
        (found,) = (await client.search(metadata={"name": "żółw"})).items
        assert (found.process_id, found.status) == ("old", ProcessStatus.RUNNING)
        await client.remove(NS, "old")
        assert await tortoise.call("outlast") == "done"
        assert [entry.attempts_count for entry in await tortoise.trace() if entry.name == "outlast"] == [0]
        with pytest.raises(ProcessNotFound):
            await client.call(NS, "gone", "names")
        assert (await client.health()).ok


async def test_a_call_behind_a_refused_one_is_not_forgotten(dsn: str, race_there: Race) -> None:
    """A call that waited for the end of another sees that end, also under repeatable read by default."""
    connections = SessionPool(dsn, limit=2)
    storage = Storage(connections, patience=10 * SECOND)
    await start(storage)
    step = await hold(storage, request())
    await race_there.begin(lambda first: save(first, step, refuse()))
    second = await race_there.waits(storage.prepare_call([request(worker_id=None)]))
    await race_there.commit()
    await second
    (found,) = await claim_calls(storage)
    await save(storage, found, resume())
    await connections.close()


@pytest.fixture
async def race_there(dsn: str, tables: Any) -> Any:
    odd(dsn, {"default_transaction_isolation": "repeatable read"})
    connections = SessionPool(dsn, limit=1)
    storage = Storage(connections, patience=SECOND)
    await storage.register_namespace(NS, options={}, schemas={})
    await connections.close()
    found = Race(dsn, tables)
    yield found
    await found.close()
    check_invariants(dsn)
