"""Handlers that run SQL of their own: their rows and their step are saved together, or neither is."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Integer, String, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from progressor import (
    App,
    CallNext,
    Client,
    Engine,
    HandlerFailed,
    HistoryRange,
    Intent,
    Namespace,
    NonRetryable,
    Process,
    Reject,
    Rejected,
    RetryPolicy,
    StepTransactionError,
    StepView,
    TaskStatus,
)
from tests.acceptance.conftest import MakeClient, MakeEngine, Options
from tests.acceptance.support import Gate, timers, until

NS = "shop.ledger"
SQL = "INSERT INTO ledger (owner, amount) VALUES (:owner, :amount)"
PSYCOPG = "INSERT INTO ledger (owner, amount) VALUES (%s, %s)"
INSERT = "INSERT INTO ledger (owner, amount) VALUES ('misused', 1)"
WRONG = "INSERT INTO ledger (owner, amount) VALUES ('misused', -1)"
MILLISECOND = timedelta(milliseconds=1)


class Base(DeclarativeBase):
    """The tables of the user."""


class Entry(Base):
    """A row of the ledger."""

    __tablename__ = "ledger"
    entry_id: Mapped[int] = mapped_column(Integer, primary_key=True)
    owner: Mapped[str] = mapped_column(String)
    amount: Mapped[int] = mapped_column(Integer)


_SESSIONS = """
SELECT state, backend_xmin::text FROM pg_stat_activity
WHERE application_name = 'progressor step' AND datname = current_database()
"""


class Till:
    """A namespace whose calls write to the ledger, one for each kind of connection."""

    def __init__(self, **options: Any) -> None:
        self.namespace = Namespace(NS, **options)
        self.gate = Gate()
        self.inits: deque[Exception] = deque()
        self.late: deque[Exception] = deque()
        self.runs = 0
        self._lives()
        self._async_calls()
        self._blocking_calls()

    def _lives(self) -> None:
        namespace = self.namespace

        @namespace.init
        async def open_(process: Process[Any], args: int, *, connection: psycopg.AsyncConnection) -> None:
            process.state = 0
            await connection.execute(PSYCOPG, (process.process_id, args))
            if self.inits:
                raise self.inits.popleft()

        @namespace.timeout
        async def fire(process: Process[Any], *, connection: AsyncConnection) -> None:
            process.emit("fired")
            await connection.execute(text(SQL), {"owner": process.process_id, "amount": 1000})
            if self.late:
                raise self.late.popleft()

        @namespace.repair
        def mend(process: Process[Any], args: int, *, connection: Session) -> None:
            connection.add(Entry(owner=process.process_id, amount=args))

        @namespace.call
        async def plain(process: Process[Any]) -> str:
            return "plain"

        @namespace.call
        async def arm(process: Process[Any]) -> None:
            process.set_timer(after=MILLISECOND)

    def _async_calls(self) -> None:
        namespace = self.namespace

        @namespace.call
        async def async_psycopg(
            process: Process[Any], args: "Pay", *, connection: psycopg.AsyncConnection
        ) -> int:
            await connection.execute(PSYCOPG, (process.process_id, args["amount"]))
            return self._end(process, args)

        @namespace.call
        async def async_connection(
            process: Process[Any], args: "Pay", *, connection: AsyncConnection
        ) -> int:
            await connection.execute(text(SQL), {"owner": process.process_id, "amount": args["amount"]})
            return self._end(process, args)

        @namespace.call
        async def async_session(process: Process[Any], args: "Pay", *, connection: AsyncSession) -> int:
            connection.add(Entry(owner=process.process_id, amount=args["amount"]))
            return self._end(process, args)

        @namespace.call(history=HistoryRange())
        async def held(process: Process[Any], args: "Pay", *, connection: AsyncConnection) -> int:
            self.runs += 1
            await connection.execute(text(SQL), {"owner": process.process_id, "amount": args["amount"]})
            await self.gate.pass_through()
            return self._end(process, args)

    def _blocking_calls(self) -> None:
        namespace = self.namespace

        @namespace.call
        def blocking_psycopg(process: Process[Any], args: "Pay", *, connection: psycopg.Connection) -> int:
            connection.execute(PSYCOPG, (process.process_id, args["amount"]))
            return self._end(process, args)

        @namespace.call
        def blocking_connection(process: Process[Any], args: "Pay", *, connection: Connection) -> int:
            connection.execute(text(SQL), {"owner": process.process_id, "amount": args["amount"]})
            return self._end(process, args)

        @namespace.call
        def blocking_session(process: Process[Any], args: "Pay", *, connection: Session) -> int:
            connection.add(Entry(owner=process.process_id, amount=args["amount"]))
            return self._end(process, args)

    @staticmethod
    def _end(process: Process[Any], args: "Pay") -> int:
        process.state += args["amount"]
        process.emit("paid", amount=args["amount"])
        match args.get("then"):
            case "reject":
                raise_reject()
            case "fail":
                raise ValueError("a fault")
            case "remove":
                process.remove()
        return int(process.state)


Pay = dict[str, Any]
CALLS = (
    "async_psycopg",
    "async_connection",
    "async_session",
    "blocking_psycopg",
    "blocking_connection",
    "blocking_session",
)


def raise_reject() -> None:
    raise Reject("no")


@pytest.fixture
async def admin(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A connection of the test's own, on a database with a ledger."""
    async with await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, prepare_threshold=None
    ) as connection:
        await connection.execute(
            "CREATE TABLE ledger (entry_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            "owner text, amount integer, "
            "UNIQUE (owner, amount) DEFERRABLE INITIALLY DEFERRED, CHECK (amount > 0))"
        )
        yield connection


Ledger = Callable[[], Awaitable[list[int]]]


@pytest.fixture
def ledger(admin: psycopg.AsyncConnection[Any]) -> Ledger:
    """The amounts in the ledger, in their order."""

    async def amounts() -> list[int]:
        found = await admin.execute("SELECT amount FROM ledger ORDER BY entry_id")
        return [amount for (amount,) in await found.fetchall()]

    return amounts


async def test_every_kind_of_connection_commits_with_its_step(
    serve: MakeClient, ledger: Ledger, admin: Any
) -> None:
    """Rows, state, events and answer of a call are there together, for all six annotations."""
    client = await serve(Till().namespace)
    process = client.process(NS, "p")
    await process.start(1)
    assert [await process.call(each, {"amount": n}) for n, each in enumerate(CALLS, 2)] == [
        2, 5, 9, 14, 20, 27,
    ]  # fmt: skip
    assert await ledger() == [1, 2, 3, 4, 5, 6, 7]
    assert (await process.get()).last_event_id == 6


@pytest.mark.parametrize("name", CALLS)
async def test_a_step_that_is_refused_or_fails_leaves_no_row(
    serve: MakeClient, ledger: Ledger, name: str
) -> None:
    """A rejection and an exception roll back what the handler wrote; the next call works."""
    client = await serve(Till().namespace)
    for process_id in ("p", "q"):
        await client.start(NS, process_id, 1 + len(process_id))
    with pytest.raises(Rejected):
        await client.call(NS, "p", name, {"amount": 7, "then": "reject"})
    with pytest.raises(HandlerFailed, match="ValueError: a fault"):
        await client.call(NS, "q", name, {"amount": 8, "then": "fail"})
    assert await ledger() == [2, 2]
    assert (await client.get(NS, "p")).last_event_id == 0
    assert await client.call(NS, "p", name, {"amount": 9}) == 9
    assert await ledger() == [2, 2, 9]


@pytest.mark.parametrize("name", CALLS)
async def test_a_handler_may_remove_its_process(serve: MakeClient, ledger: Ledger, name: str) -> None:
    """The rows of a handler that removes its process stay, and the name is free."""
    client = await serve(Till().namespace)
    await client.start(NS, "p", 1)
    await client.call(NS, "p", name, {"amount": 7, "then": "remove"})
    assert await ledger() == [1, 7]
    await client.start(NS, "p", 2)


async def test_inits_timers_notices_and_repairs_have_connections_too(
    serve: MakeClient, ledger: Ledger
) -> None:
    """A failed init leaves no row; a timer that failed once leaves the rows of its second run alone."""
    till = Till(retry_policy=RetryPolicy(initial_interval=MILLISECOND))
    client = await serve(till.namespace)
    till.inits.append(ValueError("a fault"))
    process = client.process(NS, "p")
    with pytest.raises(HandlerFailed):
        await process.start(1)
    assert await ledger() == []
    await process.repair(2)
    await until(ledger, lambda found: found == [2, 1])
    till.late.append(ValueError("a fault"))
    await process.call("arm")
    await until(ledger, lambda found: found == [2, 1, 1000])
    await process.notify("blocking_session", {"amount": 5})
    await until(ledger, lambda found: found == [2, 1, 1000, 5])
    (timer,) = await timers(client, "p", namespace=NS)
    assert timer.attempts_count == 1
    assert timer.status is TaskStatus.FINISHED


async def failed_with(client: Client, function: str, **args: Any) -> str:
    """The error of a process that a call broke."""
    await client.start(NS, function, None)
    with pytest.raises(HandlerFailed) as raised:
        await client.call(NS, function, function, args or None)
    return str(raised.value)


def misusing() -> Namespace:
    """Handlers that end their transactions, or go on after an error."""
    namespace = Namespace(NS)

    @namespace.init
    async def open_(process: Process[Any]) -> None:
        pass

    @namespace.call
    async def commits(process: Process[Any], *, connection: psycopg.AsyncConnection) -> None:
        await connection.execute(INSERT)
        await connection.commit()

    @namespace.call
    async def rolls_back(process: Process[Any], *, connection: AsyncConnection) -> None:
        await connection.execute(text(INSERT))
        await connection.rollback()

    @namespace.call
    async def says_rollback(process: Process[Any], *, connection: psycopg.AsyncConnection) -> None:
        await connection.execute(INSERT)
        await connection.execute("ROLLBACK")

    @namespace.call
    async def closes(process: Process[Any], *, connection: psycopg.AsyncConnection) -> None:
        await connection.execute(INSERT)
        await connection.close()

    @namespace.call
    async def closes_with(process: Process[Any], *, connection: psycopg.AsyncConnection) -> None:
        async with connection:
            await connection.execute(INSERT)

    @namespace.call
    async def swallows(process: Process[Any], *, connection: AsyncConnection) -> None:
        await connection.execute(text(INSERT))
        with pytest.raises(IntegrityError):
            await connection.execute(text(WRONG))

    _misusing_in_threads(namespace)
    return namespace


def _misusing_in_threads(namespace: Namespace) -> None:
    @namespace.call
    def commits_blocking(process: Process[Any], *, connection: Connection) -> None:
        connection.execute(text(INSERT))
        connection.commit()

    @namespace.call
    def says_rollback_and_begin(process: Process[Any], *, connection: psycopg.Connection) -> None:
        connection.execute(INSERT)
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        connection.execute(INSERT)

    @namespace.call
    def swallows_blocking(process: Process[Any], *, connection: psycopg.Connection) -> None:
        connection.execute(INSERT)
        with pytest.raises(psycopg.IntegrityError):
            connection.execute(WRONG)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("commits", r"commit\(\) would end the transaction of the step"),
        ("rolls_back", r"rollback\(\) would end the transaction of the step"),
        ("commits_blocking", r"commit\(\) would end the transaction of the step"),
        ("says_rollback", r"the handler ended the transaction of the step"),
        ("says_rollback_and_begin", r"the handler ended the transaction of the step"),
        ("closes", r"was closed while the handler ran"),
        ("closes_with", r"commit\(\) would end the transaction of the step"),
        ("swallows", r"an error has aborted the transaction of the step"),
        ("swallows_blocking", r"an error has aborted the transaction of the step"),
    ],
)
async def test_a_handler_that_ends_its_transaction_fails(
    engine: MakeEngine, ledger: Ledger, function: str, says: str
) -> None:
    """It gets an error that says so, without retries, and its rows are rolled back."""
    client = (await engine(misusing())).client
    await client.start(NS, "p")
    with pytest.raises(HandlerFailed, match=f"StepTransactionError: .*{says}"):
        await client.call(NS, "p", function)
    assert await ledger() == []
    assert issubclass(StepTransactionError, NonRetryable)


async def test_middleware_that_raises_after_the_handler_rolls_back_its_rows(
    dsn: str, ledger: Ledger, mode: Options
) -> None:
    """Nothing is committed when `call_next` returns."""
    fails = deque([False, True])

    async def audit(step: StepView, call_next: CallNext) -> Intent:
        intent = await call_next(step)
        if fails.popleft():
            raise Reject("over the limit")
        return intent

    async with Engine(dsn, App([Till().namespace], middleware=[audit]), **mode) as engine:
        await engine.client.start(NS, "ann", 1)
        with pytest.raises(Rejected, match="over the limit"):
            await engine.client.call(NS, "ann", "async_psycopg", {"amount": 2})
    assert await ledger() == [1]


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_handler_that_waits_before_its_sql_holds_back_no_vacuum(
    serve: MakeClient, admin: psycopg.AsyncConnection[Any], blocking: bool
) -> None:
    """Its transaction is open, but has no snapshot until its first statement."""
    namespace, gate, passed = Namespace(NS), Gate(), threading.Event()

    @namespace.call
    async def wait(process: Process[Any], *, connection: psycopg.AsyncConnection) -> None:
        await gate.pass_through()
        await connection.execute("SELECT 1")

    @namespace.call
    def wait_in_thread(process: Process[Any], *, connection: psycopg.Connection) -> None:
        passed.wait()
        connection.execute("SELECT 1")

    client = await serve(namespace)
    await client.put(NS, "p")
    asking = asyncio.create_task(client.call(NS, "p", "wait_in_thread" if blocking else "wait"))
    try:

        async def found() -> list[tuple[str, str | None]]:
            sessions = await admin.execute(_SESSIONS)
            return await sessions.fetchall()

        await until(found, lambda rows: rows == [("idle in transaction", None)])
    finally:
        gate.open()
        passed.set()
        await asking
