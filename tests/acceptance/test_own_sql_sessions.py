"""Sessions that handlers share with the engine: whatever they set there, the step is saved as any other."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from progressor import (
    Client,
    Engine,
    HandlerFailed,
    Namespace,
    Process,
    Reject,
    Rejected,
    TaskStatus,
    TraceEntry,
)
from tests.acceptance.conftest import MakeEngine, Options
from tests.acceptance.support import timers, until
from tests.acceptance.test_own_sql import INSERT, Ledger, admin, ledger

__all__ = ["admin", "ledger"]

NS = "shop.session"
KINDS = ("async_psycopg", "async_connection", "async_session", "blocking_psycopg", "blocking_session")
SECOND = timedelta(seconds=1)
Also = Callable[[Process[Any]], None]


def _as_ever(process: Process[Any]) -> None:
    process.emit("done")


class Setter:
    """A namespace whose calls run the statements that they get, one for each kind of connection.

    `also` is what each does besides; `runs` counts how often each ran.
    """

    def __init__(self, also: Also = _as_ever) -> None:
        self.namespace = Namespace(NS, state=list[str])
        self.runs: Counter[str] = Counter()
        self._also = also
        self._async_calls()
        self._blocking_calls()

    def _end(self, process: Process[Any]) -> str:
        self.runs[process.process_id] += 1
        self._also(process)
        return "saved"

    def _async_calls(self) -> None:
        @self.namespace.init
        async def begin(process: Process[list[str]]) -> None:
            process.state = []

        @self.namespace.call
        async def note(process: Process[list[str]], what: str) -> None:
            process.state.append(what)

        @self.namespace.timeout
        async def fire(process: Process[list[str]]) -> None:
            process.state.append("fired")

        @self.namespace.call
        async def async_psycopg(
            process: Process[list[str]], statements: list[str], *, connection: psycopg.AsyncConnection
        ) -> str:
            for each in statements:
                await connection.execute(cast("LiteralString", each))
            return self._end(process)

        @self.namespace.call
        async def async_connection(
            process: Process[list[str]], statements: list[str], *, connection: AsyncConnection
        ) -> str:
            for each in statements:
                await connection.execute(text(each))
            return self._end(process)

        @self.namespace.call
        async def async_session(
            process: Process[list[str]], statements: list[str], *, connection: AsyncSession
        ) -> str:
            for each in statements:
                await connection.execute(text(each))
            return self._end(process)

    def _blocking_calls(self) -> None:
        @self.namespace.call
        def blocking_psycopg(
            process: Process[list[str]], statements: list[str], *, connection: psycopg.Connection
        ) -> str:
            for each in statements:
                connection.execute(cast("LiteralString", each))
            return self._end(process)

        @self.namespace.call
        def blocking_session(
            process: Process[list[str]], statements: list[str], *, connection: Session
        ) -> str:
            for each in statements:
                connection.execute(text(each))
            return self._end(process)


async def ask(client: Client, process_id: str, kind: str, *statements: str) -> Any:
    """Start a process, and have it run these statements."""
    await client.start(NS, process_id)
    return await client.call(NS, process_id, kind, list(statements), timeout=20 * SECOND)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_fresh", [True, False])
async def test_a_role_that_a_handler_takes_on_saves_no_step(
    engine: MakeEngine, kind: str, is_fresh: bool
) -> None:
    """On a fresh connection too, whose statements are prepared behind the handler."""
    setter = Setter()
    client = (await engine(setter.namespace, connection_slots=1)).client
    if not is_fresh:
        assert await ask(client, "first", kind, "SELECT 1") == "saved"
    assert await ask(client, "p", kind, "SET LOCAL ROLE pg_monitor") == "saved"
    assert await ask(client, "next", kind, "SELECT 1") == "saved"
    assert set(setter.runs.values()) == {1}


_WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_time_out_that_a_handler_sets_is_not_that_of_the_save(
    engine: MakeEngine, admin: psycopg.AsyncConnection[Any], kind: str
) -> None:
    """A table that is locked for a moment is waited for, on a fresh connection too."""
    setter = Setter()
    client = (await engine(setter.namespace, connection_slots=1)).client
    await client.start(NS, "p")
    await admin.execute("SELECT pg_advisory_lock(7)")
    waits = ["SELECT pg_advisory_xact_lock(7)", "SET LOCAL lock_timeout = '50ms'"]
    asking = asyncio.create_task(client.call(NS, "p", kind, waits, timeout=20 * SECOND))

    async def waiting() -> Any:
        return await (await admin.execute(_WAITS)).fetchone()

    await until(waiting, lambda row: row == (1,))
    async with admin.transaction():
        await admin.execute("LOCK TABLE progressor.tasks")
        await admin.execute("SELECT pg_advisory_unlock(7)")
        await asyncio.sleep(0.3)
    assert await asking == "saved"
    assert await ask(client, "next", kind, "SELECT 1") == "saved"
    assert setter.runs == {"p": 1, "next": 1}


@pytest.mark.parametrize("kind", KINDS)
async def test_statements_of_the_engine_that_a_handler_drops(
    engine: MakeEngine, ledger: Ledger, kind: str
) -> None:
    """The session is not used again: the handler runs once more, on another one."""
    setter = Setter()
    client = (await engine(setter.namespace, connection_slots=1)).client
    assert await ask(client, "first", kind, "SELECT 1") == "saved"
    assert await ask(client, "p", kind, "DEALLOCATE ALL", INSERT) == "saved"
    assert await ask(client, "next", kind, "SELECT 1") == "saved"
    assert await ledger() == [1]
    assert setter.runs["p"] <= 2
    assert setter.runs["next"] == 1


@pytest.mark.parametrize("name", ["lock", "commit", "rollback", "settings"])
async def test_a_handler_may_give_its_statements_any_name(engine: MakeEngine, name: str) -> None:
    """Those of the engine have names of their own."""
    setter = Setter()
    client = (await engine(setter.namespace, connection_slots=1)).client
    prepare = f"PREPARE {name} AS SELECT 1"
    assert await ask(client, "p", "async_psycopg", prepare, f"DEALLOCATE {name}") == "saved"
    assert await ask(client, "q", "async_psycopg", prepare, f"EXECUTE {name}") == "saved"
    assert setter.runs == {"p": 1, "q": 1}


async def test_a_time_that_is_passed_over_is_saved_as_any_other_step(
    engine: MakeEngine, admin: psycopg.AsyncConnection[Any]
) -> None:
    """No handler runs, so there is no transaction of one: what a database sets does not matter."""
    namespace = Namespace(NS, state=list[str])

    @namespace.init
    async def begin(process: Process[list[str]]) -> None:
        process.state = []
        process.set_timer("late", every=SECOND / 5, catch_up="skip", within=timedelta(microseconds=1))

    @namespace.timeout("late")
    async def late(process: Process[list[str]], *, connection: psycopg.AsyncConnection) -> None:
        process.state.append("fired")

    name = sql.Identifier(admin.info.dbname)
    await admin.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    client = (await engine(namespace)).client
    await client.start(NS, "p")

    async def ended() -> list[TraceEntry]:
        found = await timers(client, "p", namespace=NS)
        return [each for each in found if each.status not in (TaskStatus.WAITING, TaskStatus.RUNNING)]

    passed, *_ = await until(ended, len)
    assert (passed.status, passed.error) == (TaskStatus.FINISHED, None)
    assert passed.response["passed_over"] == "too late"
    assert (await client.get(NS, "p")).state == []


def _in_german(process: Process[Any]) -> None:
    process.state.append("größer")
    process.send(NS, "müller", "note", "schön")
    process.set_timer("grüße", after=timedelta(days=1))
    process.metadata["stadt"] = "Köln"
    process.emit("größer", x="ä")


_ENCODINGS = ["LATIN1", "WIN1252", "SQL_ASCII", "SJIS", "EUC_JP"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", ["SET", "SET LOCAL"])
@pytest.mark.parametrize("encoding", _ENCODINGS)
async def test_texts_of_a_step_are_saved_whatever_encoding_its_handler_speaks(
    engine: MakeEngine, kind: str, setting: str, encoding: str
) -> None:
    """Names, metadata and messages too, on a fresh connection and on one that was used."""
    setter = Setter(_in_german)
    client = (await engine(setter.namespace, connection_slots=1)).client
    await client.start(NS, "müller")
    for process_id in ("erna", "jürgen"):
        await ask(client, process_id, kind, f"{setting} client_encoding TO '{encoding}'")
        process = await client.get(NS, process_id)
        assert process.metadata == {"stadt": "Köln"}
        assert process.timers.keys() == {"grüße"}
        assert process.state == ["größer"]
        (event,) = process.history
        assert (event.name, event.payload) == ("größer", {"x": "ä"})
    await until(lambda: client.get(NS, "müller"), lambda found: found.state == ["schön", "schön"])
    found = await client.search(namespace=NS, metadata={"stadt": "Köln"})
    assert sorted(each.process_id for each in found.items) == ["erna", "jürgen"]


_SETTINGS = [
    "SET SESSION AUTHORIZATION pg_monitor",
    "SET LOCAL SESSION AUTHORIZATION pg_monitor",
    "SET ROLE pg_monitor",
    "SET LOCAL search_path TO mine, pg_catalog",
    "SET search_path TO mine, pg_catalog",
    "SET search_path TO ''",
    "SET bytea_output TO escape",
    "SET array_nulls TO off",
    "SET standard_conforming_strings TO off",
    "SET DateStyle TO 'German'",
    "SET IntervalStyle TO sql_standard",
    "SET TimeZone TO 'Asia/Kathmandu'",
    "SET extra_float_digits TO -15",
    "SET transform_null_equals TO on",
    "SET xmlbinary TO hex",
    "SET row_security TO off",
    "SET plan_cache_mode TO force_custom_plan",
    "SET default_transaction_isolation TO serializable",
    "SET statement_timeout TO 1",
    "CREATE TEMP TABLE processes (process_no bigint)",
    "CREATE TYPE pg_temp.text AS (x integer)",
]


# Functions with the names of those that the engine's statements call.
_MINE = """
CREATE SCHEMA mine;
CREATE FUNCTION mine.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '2001-01-01' $$;
CREATE FUNCTION mine.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT 'no' $$
"""


@pytest.mark.parametrize("statement", _SETTINGS)
async def test_settings_of_a_handler_change_nothing_about_its_step(
    engine: MakeEngine, admin: psycopg.AsyncConnection[Any], mode: Options, statement: str
) -> None:
    """Nor about the next one on its connection, unless a pooler may lend the sessions out."""
    if "standard_conforming_strings" in statement and admin.info.server_version >= 190000:
        pytest.skip("PostgreSQL 19 has no other strings")
    await admin.execute(_MINE)
    setter = Setter(_in_german)
    client = (await engine(setter.namespace, connection_slots=1)).client
    await client.start(NS, "müller")
    ids = ("p", "next", "q") if mode.get("signals", True) else ("p",)
    for process_id in ids:
        what = "SELECT now()" if process_id == "next" else statement
        assert await ask(client, process_id, "async_psycopg", what) == "saved"
        process = await client.get(NS, process_id)
        assert (process.metadata, process.timers.keys()) == ({"stadt": "Köln"}, {"grüße"})
        assert process.timers["grüße"].due > datetime.now(UTC) + timedelta(hours=23)
        for entry in await client.trace(NS, process_id):
            assert entry.finished_time is None or entry.finished_time.year > 2001
    assert setter.runs == dict.fromkeys(ids, 1)


async def test_a_session_with_a_role_of_its_own_keeps_it(
    dsn: str, mode: Options, admin: psycopg.AsyncConnection[Any]
) -> None:
    """Each handler finds the role that the database gives to its sessions, whatever the one before took."""
    role = f"prg_test_{uuid4().hex[:12]}"
    names = {"database": sql.Identifier(admin.info.dbname), "role": sql.Identifier(role)}
    await admin.execute(sql.SQL("CREATE ROLE {role} SUPERUSER").format(**names))
    await admin.execute(sql.SQL("ALTER DATABASE {database} SET role = {role}").format(**names))
    setter, found = Setter(), []

    @setter.namespace.call
    async def look(process: Process[list[str]], *, connection: psycopg.AsyncConnection) -> None:
        row = await (await connection.execute("SELECT current_user::text")).fetchone()
        found.append(row)

    try:
        async with Engine(dsn, [setter.namespace], connection_slots=1, **mode) as engine:
            client = engine.client
            await client.start(NS, "p")
            await client.call(NS, "p", "look")
            for number, statement in enumerate(("SET ROLE", "SET SESSION AUTHORIZATION")):
                await ask(client, f"q{number}", "async_psycopg", f"{statement} pg_monitor")
                await client.call(NS, "p", "look")
    finally:
        await admin.execute(sql.SQL("ALTER DATABASE {database} RESET role").format(**names))
        await admin.execute(sql.SQL("DROP ROLE {role}").format(**names))
    assert found == [(role,)] * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "prepare", ["PREPARE by_id AS SELECT 1", 'PREPARE "progressor.Is it?" AS SELECT 1']
)
async def test_what_a_handler_prepares_is_forgotten(
    engine: MakeEngine, mode: Options, kind: str, prepare: str
) -> None:
    """The next one may prepare a statement of the same name."""
    setter = Setter()
    client = (await engine(setter.namespace, connection_slots=1)).client
    ids = ("a", "b", "c") if mode.get("signals", True) else ("a",)
    for process_id in ids:
        assert await ask(client, process_id, kind, prepare) == "saved"
    assert setter.runs == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("ends", ["well", "raises", "is not saved"])
async def test_what_a_handler_leaves_is_forgotten_however_its_step_ends(
    engine: MakeEngine, admin: psycopg.AsyncConnection[Any], mode: Options, ends: str
) -> None:
    """What psycopg prepares at its wish too; one whose step was not saved runs again."""
    is_lent = not mode.get("signals", True)
    setter = Setter()
    runs = Counter[str]()

    @setter.namespace.call
    async def leave(process: Process[list[str]], *, connection: psycopg.AsyncConnection) -> None:
        runs[process.process_id] += 1
        if not is_lent:
            connection.prepare_threshold = 0
            await connection.execute("SELECT %s::integer", (runs.total(),))
            await connection.execute("PREPARE mine AS SELECT 1")
        if ends == "raises":
            raise Reject("no")
        if ends == "is not saved" and runs[process.process_id] == 1:
            await admin.execute("ALTER TABLE progressor.tasks RENAME TO gone")
            asyncio.get_running_loop().call_later(1, come_back)

    def come_back() -> None:
        backs.append(asyncio.ensure_future(admin.execute("ALTER TABLE progressor.gone RENAME TO tasks")))

    backs: list[Any] = []
    client = (await engine(setter.namespace, connection_slots=1)).client
    for process_id in ("a", "b"):
        await client.start(NS, process_id)
        if ends == "raises":
            with pytest.raises(Rejected, match="no"):
                await client.call(NS, process_id, "leave")
        else:
            await client.call(NS, process_id, "leave", timeout=20 * SECOND)
    assert runs == dict.fromkeys(("a", "b"), 2 if ends == "is not saved" else 1)


def piping() -> Namespace:
    """Handlers that leave a pipeline of psycopg open."""
    namespace, kept = Namespace(NS), []

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        pass

    async def pipe(connection: psycopg.AsyncConnection) -> None:
        pipeline = connection.pipeline()
        await pipeline.__aenter__()
        await connection.execute(INSERT)
        kept.append(pipeline)

    @namespace.call
    async def leaves(process: Process[Any], *, connection: psycopg.AsyncConnection) -> None:
        await pipe(connection)

    @namespace.call
    async def forgets(process: Process[Any], *, connection: psycopg.AsyncConnection) -> None:
        await pipe(connection)
        kept.pop()

    @namespace.call
    async def raises(process: Process[Any], *, connection: psycopg.AsyncConnection) -> None:
        await pipe(connection)
        raise ValueError("a fault")

    @namespace.call
    async def leaves_under_sqlalchemy(process: Process[Any], *, connection: AsyncConnection) -> None:
        await pipe(cast("Any", (await connection.get_raw_connection()).driver_connection))

    @namespace.call
    async def sane(process: Process[Any], *, connection: psycopg.AsyncConnection) -> str:
        async with connection.pipeline():
            await connection.execute(INSERT)
        return "saved"

    _piping_in_threads(namespace)
    return namespace


def _piping_in_threads(namespace: Namespace) -> None:
    kept = []

    def pipe(connection: psycopg.Connection) -> None:
        pipeline = connection.pipeline()
        pipeline.__enter__()
        connection.execute(INSERT)
        kept.append(pipeline)

    @namespace.call
    def leaves_blocking(process: Process[Any], *, connection: psycopg.Connection) -> None:
        pipe(connection)

    @namespace.call
    def raises_blocking(process: Process[Any], *, connection: psycopg.Connection) -> None:
        pipe(connection)
        raise ValueError("a fault")


_AMID = "StepTransactionError: the handler returned amid a pipeline"


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("leaves", _AMID),
        ("forgets", _AMID),
        ("raises", "ValueError: a fault"),
        ("leaves_under_sqlalchemy", _AMID),
        ("leaves_blocking", _AMID),
        ("raises_blocking", "ValueError: a fault"),
    ],
)
async def test_a_pipeline_that_a_handler_leaves_open_is_its_failure(
    engine: MakeEngine, ledger: Ledger, function: str, says: str
) -> None:
    """It runs once, gets an error that says so, and leaves nothing to the next handler."""
    client = (await engine(piping(), connection_slots=1)).client
    await client.start(NS, "p")
    with pytest.raises(HandlerFailed, match=says):
        await client.call(NS, "p", function, timeout=10 * SECOND)
    await client.start(NS, "next")
    assert await client.call(NS, "next", "sane", timeout=10 * SECOND) == "saved"
    assert await ledger() == [1]
