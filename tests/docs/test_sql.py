"""The SQL of the pages runs as it stands, and the page of the schema has every column."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from progressor import Client, Engine, HandlerFailed, Namespace, Process, StorageUnavailable
from progressor.storage import migrations
from progressor.storage.doctor import examine
from progressor.storage.heartbeats import Beats
from progressor.storage.operations import Storage
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.schema import metadata
from tests.docs.pages import ROOT, Block, blocks, name_of, pages, read
from tests.support import SECOND

_SCHEMA = "docs/reference/schema.md"
_SHARE = "docs/how-to/share-a-database.md"
_ROLE = re.compile(r"\bprogressor_(owner|app|api|reader)\b")

billing = Namespace("billing.subscription")


@billing.init
async def begin(process: Process) -> None:
    """A process whose timer is due soon."""
    process.set_timer(after=60 * SECOND)


@billing.timeout
async def bill(process: Process) -> None:
    """A timer may be set: there is somebody to run it."""


@billing.call
async def pay(process: Process, amount: int) -> int:
    """A call with an event; without an amount it breaks the process."""
    process.emit("paid", amount=100 // amount)
    return amount


@pytest.fixture
async def busy(dsn: str) -> str:
    """A database in which something has happened, waits, runs and is broken."""
    async with Engine(dsn, [billing]) as engine:
        acme = engine.client.process("billing.subscription", "acme")
        await acme.start()
        await acme.call("pay", 5, idempotency_key="payment-17")
        late = engine.client.process("billing.subscription", "late")
        await late.start()
        broken = engine.client.process("billing.subscription", "broken")
        await broken.start()
        with pytest.raises(HandlerFailed):
            await broken.call("pay", 0)
    async with Client(dsn) as client:
        await client.notify("billing.subscription", "acme", "pay", 1)
        await client.notify("billing.subscription", "late", "pay", 1)
        await client.tokens.create("web-shop", scopes=["all"], namespaces=["*"], lifetime=None)
    connections = SessionPool(dsn, limit=2)
    storage = Storage(connections, patience=10 * SECOND)
    beats = Beats(dsn, worker_id=7, host="here", namespaces={}, lease_age=15 * SECOND)
    beats.beat({}, {})
    beats.close()
    await storage.search("calls", "billing.subscription", 1, worker_id=7, lease=1)
    await connections.close()
    with psycopg.connect(dsn) as connection:
        # A message to a namespace that nobody serves.
        connection.execute(
            """
            INSERT INTO progressor.outbox (
                process_no, task_id, created_at, due, n, task_type, namespace, process_id, name,
                idempotency_key, request_hash
            )
            SELECT process_no, task_id, now(), now(), 0, 'notify', 'shop.ledger', 'main', 'post', 'key', ''
            FROM progressor.tasks
            WHERE task_type = 'call' AND status = 'finished'
            LIMIT 1
            """
        )
    return dsn


def _queries() -> list[Block]:
    """The statements of all pages but those of roles, which have a test of their own."""
    return [block for page in pages() for block in blocks(page, "sql") if not block.note]


@asynccontextmanager
async def _somebody_waits(dsn: str) -> AsyncIterator[None]:
    """One session has a lock, and another one waits for it."""
    lock = "SELECT pg_advisory_lock(1)"
    connect = partial(psycopg.AsyncConnection.connect, dsn, autocommit=True)
    async with await connect() as holder, await connect() as waiter:
        await holder.execute(lock)
        waiting = asyncio.create_task(waiter.execute(lock))
        blocked = "SELECT cardinality(pg_blocking_pids(%s))"
        while await (await holder.execute(blocked, [waiter.info.backend_pid])).fetchone() == (0,):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        yield
        await holder.close()
        await waiting


async def test_the_queries_of_the_pages_find_something(busy: str) -> None:
    """Each finds at least one row in a database in which all kinds of things have happened."""
    queries = _queries()
    assert queries
    async with _somebody_waits(busy), await psycopg.AsyncConnection.connect(busy) as connection:
        for block in queries:
            place = f"{name_of(block.page)}:{block.line}"
            assert (await connection.execute(block.code.encode())).rowcount > 0, place


def _sections() -> dict[str, set[str]]:
    """The names in code that stand under each heading of the page."""
    parts = re.split(r"^### (\w+)$", read(_SCHEMA), flags=re.MULTILINE)[1:]
    return {
        name: set(re.findall(r"`(\w+)`", text)) for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_column_and_index_of_the_tables_is_listed() -> None:
    """Under the heading of its table."""
    sections = _sections()
    for table in metadata.sorted_tables:
        named = {column.name for column in table.columns} | {str(index.name) for index in table.indexes}
        assert named <= sections[table.name], table.name


async def test_every_column_of_the_views_is_listed(dsn: str) -> None:
    """Under the heading of its view, in its order; and there is no other view."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            """
            SELECT c.relname, string_agg('`' || a.attname || '`', ', ' ORDER BY a.attnum)
            FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
            WHERE c.relkind = 'v' AND c.relnamespace = 'progressor'::regnamespace
            GROUP BY c.relname
            """
        ).fetchall()
    page = " ".join(read(_SCHEMA).split())
    assert len(found) == len(re.findall(r"^### v_", read(_SCHEMA), re.MULTILINE))
    for view, columns in found:
        assert f"### {view} {columns}." in page


class Roles:
    """The roles of the page, under names that no other run has, and a database that they share."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._prefix = f"prg_test_{uuid4().hex[:12]}_"
        self._admin = psycopg.connect(dsn, autocommit=True)
        self.names = [self._prefix + name for name in ("owner", "app", "api", "reader")]

    def run(self, block: Block) -> None:
        """As the DBA, or as the owner."""
        code = _ROLE.sub(lambda match: self._prefix + match[1], block.code)
        if block.note in ("as dba", "as dba, too"):
            self._admin.execute(code.encode())
        else:
            self._admin.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(self.names[0])))
            self._admin.execute(code.encode())
            self._admin.execute("RESET ROLE")

    def url(self, name: str) -> str:
        """A connection whose rights are those of the role."""
        return make_conninfo(self.dsn, options=f"-crole={self._prefix}{name}")

    def drop(self) -> None:
        for name in self.names:
            if self._admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone():
                self._admin.execute(
                    sql.SQL("DROP OWNED BY {} CASCADE; DROP ROLE {}").format(*[sql.Identifier(name)] * 2)
                )
        self._admin.close()


@pytest.fixture
def roles(empty_dsn: str) -> Iterator[Roles]:
    made = Roles(empty_dsn)
    yield made
    made.drop()


async def test_the_grants_of_the_page_are_enough(roles: Roles) -> None:
    """With them the owner migrates, the application does everything, and people see the views."""
    page = ROOT / _SHARE
    dba, *grants = [block for block in blocks(page, "sql") if block.note]
    with psycopg.connect(roles.dsn) as connection:
        connection.execute(
            "CREATE TABLE public.alembic_version (version_num text); CREATE TABLE public.events ()"
        )
        connection.execute("INSERT INTO public.alembic_version VALUES ('ours')")
        # Stricter than any server is by itself.
        connection.execute("REVOKE ALL ON SCHEMA public FROM public")
    roles.run(dba)
    migrations.upgrade(roles.url("owner"))
    for block in grants:
        roles.run(block)
    with psycopg.connect(roles.dsn) as connection:
        connection.execute(
            "REVOKE USAGE ON TYPE progressor.process_status, progressor.task_type, progressor.task_status "
            "FROM public"
        )
    migrations.check(roles.url("app"))
    async with (
        Engine(roles.url("app"), [billing]) as engine,
        Client(roles.url("app"), signals=False) as client,
    ):
        await client.start("billing.subscription", "acme")
        assert await client.call("billing.subscription", "acme", "pay", 5) == 5
        await engine.client.put("billing.subscription", "imported", state=1)
        assert len((await client.search()).items) == 2
        assert len(await client.trace("billing.subscription", "acme")) == 3
        await client.remove("billing.subscription", "imported")
    assert examine(roles.url("app")).is_clean
    await _check_the_api_apart(roles)
    with psycopg.connect(roles.url("reader")) as connection:
        for view in re.findall(r"^### (v_\w+)$", read(_SCHEMA), re.MULTILINE):
            connection.execute(sql.SQL("SELECT * FROM progressor.{}").format(sql.Identifier(view)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM progressor.tasks")
    async with Client(roles.url("reader")) as operator:
        await operator.pause("billing.subscription")
        await operator.resume("billing.subscription")
    with psycopg.connect(roles.dsn) as connection:
        assert connection.execute("TABLE public.alembic_version").fetchall() == [("ours",)]


async def _check_the_api_apart(roles: Roles) -> None:
    """The API's role looks at tokens that the owner makes, and makes none; workers see none."""
    rights = {"scopes": ["all"], "namespaces": ["*"], "lifetime": None}
    async with Client(roles.url("owner"), signals=False) as owner:
        token, _ = await owner.tokens.create("web-shop", **rights)
    async with Client(roles.url("api"), signals=False) as api:
        await api.tokens.note_use(token.token_id)
        found = await api.tokens.find(token.token_id)
        assert found is not None
        assert found.last_used_at is not None
        assert len((await api.search()).items) == 1
        await api.remove("billing.subscription", "acme")
        with pytest.raises(StorageUnavailable, match="permission denied for table tokens"):
            await api.tokens.create("mine", **rights)
        with pytest.raises(StorageUnavailable, match="permission denied for table tokens"):
            await api.tokens.revoke(token.token_id)
    async with Client(roles.url("app"), signals=False) as app:
        with pytest.raises(StorageUnavailable, match="permission denied for table tokens"):
            await app.tokens.find(token.token_id)


def test_the_printed_sql_needs_no_right_on_the_database(roles: Roles) -> None:
    """Where somebody else has made the schema."""
    (dba, *_) = [block for block in blocks(ROOT / _SHARE, "sql") if block.note]
    roles.run(dba)
    with psycopg.connect(roles.url("owner"), autocommit=True) as connection:
        connection.execute(migrations.sql().encode())
    migrations.check(roles.url("owner"))
