"""Roles that lack a privilege, for good or for a moment: told by name, and nothing that runs is broken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from progressor import (
    Client,
    Engine,
    HistoryRange,
    ProcessStatus,
    ProgressorError,
    Retention,
    StorageUnavailable,
)
from progressor.loggers import message_of
from progressor.storage import longest_outage, migrations
from progressor.storage.doctor import examine
from progressor.storage.operations import Storage
from progressor.storage.postgres.pool import SessionPool
from tests.acceptance.support import NS as BANK, Act, Scripted, until
from tests.support import (
    NS,
    SECOND,
    LossyConnections,
    check_invariants,
    eventually,
    hold,
    number,
    request,
    resume,
    save,
    start,
)

# All that the page on shared databases grants.
_GRANTS: LiteralString = """
    GRANT USAGE ON SCHEMA progressor TO {role};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA progressor TO {role};
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA progressor TO {role};
"""


class Role:
    """A role that logs in, and what it may do."""

    def __init__(self, dsn: str) -> None:
        self.name = f"prg_test_{uuid4().hex[:12]}"
        self._admin = psycopg.connect(dsn, autocommit=True)
        self.dsn = make_conninfo(dsn, user=self.name, password=self.name)
        self.execute("CREATE ROLE {role} LOGIN PASSWORD {password}")

    def execute(self, statement: LiteralString) -> None:
        """As a superuser; `{role}` is this one."""
        self._admin.execute(
            sql.SQL(statement).format(role=sql.Identifier(self.name), password=sql.Literal(self.name))
        )

    def drop(self) -> None:
        self.execute("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
        self._admin.close()


@pytest.fixture
def role(dsn: str) -> Iterator[Role]:
    """A role that may do nothing, on a database with all tables."""
    made = Role(dsn)
    yield made
    made.drop()
    check_invariants(dsn)


@pytest.fixture
def app(role: Role) -> Role:
    """The same, that may do what it has to."""
    role.execute(_GRANTS)
    return role


@pytest.fixture
def stranger(empty_dsn: str) -> Iterator[Role]:
    """A role on a database without tables."""
    made = Role(empty_dsn)
    yield made
    made.drop()


def said(error: pytest.ExceptionInfo[ProgressorError], *words: str) -> None:
    """One line in plain words, which has these; no SQL in it, and none in what it comes from."""
    text = str(error.value)
    assert all(word in text for word in words), text
    assert "\n" not in text
    assert not any(word in text for word in ("INSERT INTO", "FROM", "%(", "$1", "psycopg", "sqlalche.me"))
    assert error.value.__cause__ is None


def test_a_role_without_sequences(role: Role) -> None:
    """Who only reads may not ask where a sequence is, and needs no right for it."""
    role.execute("GRANT USAGE ON SCHEMA progressor TO {role}")
    role.execute("GRANT SELECT ON ALL TABLES IN SCHEMA progressor TO {role}")
    assert migrations.check(role.dsn) == migrations.head()
    with pytest.raises(StorageUnavailable, match="permission denied"):
        migrations.lift_sequences(role.dsn)


def test_migrate_without_create(stranger: Role) -> None:
    """Who may not make the schema is told which right is missing, and what to do."""
    with pytest.raises(StorageUnavailable) as caught:
        migrations.upgrade(stranger.dsn)
    said(caught, "permission denied for database", stranger.name, "CREATE on the database")


def test_migrate_in_a_schema_of_somebody_else(stranger: Role) -> None:
    """So is who may not make tables in it."""
    stranger.execute("CREATE SCHEMA progressor")
    with pytest.raises(StorageUnavailable) as caught:
        migrations.upgrade(stranger.dsn)
    said(caught, "permission denied for schema progressor", stranger.name)


def test_the_printed_sql_needs_no_create_where_the_schema_is(stranger: Role) -> None:
    """Where the DBA made the schema, its owner can run the SQL as it is printed."""
    stranger.execute("CREATE SCHEMA progressor AUTHORIZATION {role}")
    with psycopg.connect(stranger.dsn, autocommit=True) as connection:
        connection.execute(migrations.sql().encode())
    migrations.check(stranger.dsn)


LOOKS: dict[str, Callable[[str], object]] = {
    "migrate": migrations.upgrade,
    "check": migrations.check,
    "doctor": examine,
    "descent": lambda dsn: migrations.descent(dsn, "base"),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("grant", ["", "GRANT USAGE ON SCHEMA progressor TO {role}"], ids=["none", "usage"])
def test_looking_without_select(role: Role, look: str, grant: LiteralString) -> None:
    """Neither the schema nor a table that may not be read gives a traceback."""
    if grant:
        role.execute(grant)
    with pytest.raises(StorageUnavailable) as caught:
        LOOKS[look](role.dsn)
    said(caught, "permission denied for", role.name)


async def test_starting_without_privileges(role: Role) -> None:
    """Client and engine say at their start what is missing."""
    with pytest.raises(StorageUnavailable) as caught:
        async with Client(role.dsn):
            pass
    said(caught, "permission denied for schema progressor", role.name, "USAGE on the schema")
    role.execute(
        "GRANT USAGE ON SCHEMA progressor TO {role}; GRANT SELECT ON progressor.alembic_version TO {role}"
    )
    with pytest.raises(StorageUnavailable) as caught:
        async with Engine(role.dsn, [Scripted().namespace]):
            pass
    said(caught, "permission denied for table namespaces", role.name, "INSERT")


async def test_requests_without_privileges(app: Role) -> None:
    """Each request tells its caller at once, and works when the right is there."""
    async with Engine(app.dsn, [Scripted().namespace]) as engine, Client(app.dsn) as client:
        await client.start(BANK, "p", Act())
        app.execute("REVOKE ALL ON ALL TABLES IN SCHEMA progressor FROM {role}")
        for asking in (
            client.call(BANK, "p", "act", Act()),
            engine.client.call(BANK, "p", "act", Act()),
            client.start(BANK, "q", Act()),
            client.notify(BANK, "p", "act", Act()),
            client.repair(BANK, "p", Act()),
            client.simple_repair(BANK, "p"),
            client.put(BANK, "r"),
            client.remove(BANK, "p"),
            client.get(BANK, "p"),
            client.trace(BANK, "p"),
            client.search(),
        ):
            with pytest.raises(StorageUnavailable) as caught:
                await asking
            said(caught, "permission denied for", app.name, "SELECT")
        assert not (await client.health()).ok
        app.execute(_GRANTS)
        assert await client.call(BANK, "p", "act", Act(add=1)) == 1


async def test_what_nobody_can_save_is_an_outage(app: Role, caplog: pytest.LogCaptureFixture) -> None:
    """Said in one line of a process that only asks, however many callers are told; and in its health."""
    async with Engine(app.dsn, [Scripted().namespace]) as engine:
        await engine.client.start(BANK, "p", Act())
    async with Client(app.dsn) as client:
        await client.notify(BANK, "p", "act", Act())
        app.execute("REVOKE USAGE ON ALL SEQUENCES IN SCHEMA progressor FROM {role}")
        caplog.set_level(logging.INFO, logger="progressor.storage")
        for _ in range(5):
            with pytest.raises(StorageUnavailable, match="permission denied for sequence"):
                await client.notify(BANK, "p", "act", Act())
        (line,) = [vars(each) for each in caplog.records if each.levelno == logging.WARNING]
        assert message_of(caplog.records[0]) == "PostgreSQL not available"
        assert f"grant the role {app.name}" in line["cause"]
        outage = longest_outage()
        assert outage is not None
        assert outage.cause == line["cause"]
        app.execute(_GRANTS)
        await client.notify(BANK, "p", "act", Act())


async def test_who_may_only_read_has_no_outage(app: Role, caplog: pytest.LogCaptureFixture) -> None:
    """A request that was never allowed here is said in the log, and its process stays healthy."""
    async with Engine(app.dsn, [Scripted().namespace]) as engine:
        await engine.client.start(BANK, "p", Act())
    app.execute("REVOKE USAGE ON ALL SEQUENCES IN SCHEMA progressor FROM {role}")
    async with Client(app.dsn) as client:
        for _ in range(5):
            with pytest.raises(StorageUnavailable, match="permission denied for sequence"):
                await client.notify(BANK, "p", "act", Act())
        assert client._node.storage.outage.seconds == 0
    assert [message_of(each) for each in caplog.records if each.levelno == logging.WARNING] == [
        "the role may not do what is asked here"
    ]


async def test_the_rights_of_an_application_are_enough_for_retention(app: Role) -> None:
    """Its walk draws a number, and reads no sequence, which is its owner's."""
    storage = Storage(connections := SessionPool(app.dsn, limit=1), patience=SECOND)
    await storage.register_namespace(NS, options={}, schemas={})
    assert await storage.set_retention(NS, Retention(events=1))
    swept = await storage.sweep(rate=1)
    assert swept is not None
    assert swept.is_over
    await connections.close()


async def test_running_steps_outlive_a_missing_privilege(
    app: Role, caplog: pytest.LogCaptureFixture
) -> None:
    """What runs while a right is missing is saved when it is back; the log says why it waits."""
    caplog.set_level(logging.WARNING)
    scripted = Scripted(concurrency=20, history=HistoryRange())
    names = [f"p{place}" for place in range(10)]
    async with Engine(app.dsn, [scripted.namespace], scan_interval=SECOND / 10) as engine:
        for name in names:
            await engine.client.start(BANK, name, Act(emit="opened"))
            await engine.client.notify(BANK, name, "act", Act(add=1, gate=name, emit="called"))
        for name in names:
            await scripted.gates[name].entered()
        app.execute("REVOKE ALL ON ALL TABLES IN SCHEMA progressor FROM {role}")
        for name in names:
            scripted.gates[name].open()

        async def refused() -> list[str]:
            causes = [getattr(record, "cause", "") for record in caplog.records]
            return [cause for cause in causes if "permission denied for" in cause]

        await until(refused, bool)
        app.execute(_GRANTS)
        for name in names:
            await until(
                lambda name=name: engine.client.get(BANK, name), lambda found: found.last_event_id == 2
            )
            process = await engine.client.get(BANK, name)
            assert (process.status, process.state.balance) == (ProcessStatus.RUNNING, 1)
    assert any(app.name in cause for cause in await refused())


async def test_a_task_that_may_be_held_unawares_is_not_forgotten(
    app: Role, caplog: pytest.LogCaptureFixture
) -> None:
    """A request accepted by a try whose answer was lost is found when the right is back."""
    connections = LossyConnections(app.dsn, limit=2)
    storage = Storage(connections, patience=SECOND)
    await storage.register_namespace(NS, options={}, schemas={})
    await start(storage)

    async def meanwhile() -> None:
        app.execute("REVOKE ALL ON ALL TABLES IN SCHEMA progressor FROM {role}")

    connections.late, connections.meanwhile = 1, meanwhile
    holding = asyncio.create_task(hold(storage, request()))
    await eventually(lambda: "not available" in caplog.text, "the second try is refused")
    app.execute(_GRANTS)
    await save(storage, await holding, resume())
    await connections.close()


async def test_a_value_of_the_wrong_type_is_final(dsn: str) -> None:
    """A message that PostgreSQL does not understand is a defect: no repetition makes it right."""
    connections = SessionPool(dsn, limit=1)
    storage = Storage(connections, patience=timedelta(days=1))
    with pytest.raises(ProgressorError, match="insufficient data left in message"):
        await storage.search("calls", NS, b"\1", worker_id=1, lease=number())  # type: ignore[arg-type]
    await connections.close()


async def test_who_finds_no_connection_is_told_so(app: Role) -> None:
    """The first request of a client, whose time is over before the server has a place for it."""
    async with Client(app.dsn) as client:
        app.execute("ALTER ROLE {role} CONNECTION LIMIT 0")
        with pytest.raises(StorageUnavailable, match=r"within 2 s .*too many connections"):
            await client.start("shop", "p1", timeout=2)
