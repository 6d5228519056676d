"""The handlers that are compared: each adds an amount to its state, emits an event and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from progressor import Namespace, Process
from progressor.bench.chain import Inconsistent
from progressor.bench.databases import run_sql
from progressor.bench.flows import CONCURRENCY

MAKE_TABLE = """
CREATE TABLE payments (
    payment_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account text NOT NULL,
    amount integer NOT NULL
)
"""
INSERT = "INSERT INTO payments (account, amount) VALUES (%s, %s)"
_INSERT_BY_NAMES = text("INSERT INTO payments (account, amount) VALUES (:account, :amount)")
_COUNT = "SELECT count(*) AS rows FROM payments WHERE account = ANY (%(accounts)s)"
# Connections of a pool made by hand: as many as an engine has for steps with SQL of their own.
POOL = 8


class PayArgs(BaseModel):
    """The amount to add."""

    amount: int


class PricesBase(DeclarativeBase):
    """The tables of this service."""


class PaymentRow(PricesBase):
    """A row that a handler adds to a table of its own."""

    __tablename__ = "payments"
    payment_id: Mapped[int] = mapped_column(primary_key=True)
    account: Mapped[str]
    amount: Mapped[int]


class BankResource:
    """A resource that does nothing but count."""

    def __init__(self) -> None:
        self.charged = 0

    def charge(self, amount: int) -> None:
        """Count what was charged."""
        self.charged += amount


class DriverPool:
    """Connections of psycopg in a pool made by hand."""

    def __init__(self) -> None:
        self._free: asyncio.LifoQueue[psycopg.AsyncConnection[Any]] = asyncio.LifoQueue()

    @classmethod
    @asynccontextmanager
    async def opened(cls, dsn: str) -> AsyncIterator[DriverPool]:
        """Open the connections, and close them after the block."""
        pool = cls()
        async with AsyncExitStack() as stack:
            for _ in range(POOL):
                connection = await psycopg.AsyncConnection.connect(dsn)
                await stack.enter_async_context(connection)
                pool._free.put_nowait(connection)
            yield pool

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Yield a connection that nobody else has."""
        connection = await self._free.get()
        try:
            yield connection
        finally:
            self._free.put_nowait(connection)


def check_rows(dsn: str, accounts: list[str], count: int) -> None:
    """Check that the table has so many rows of these accounts; raise Inconsistent."""
    (found,) = run_sql(dsn, _COUNT, accounts=accounts)
    if found["rows"] != count:
        raise Inconsistent(f"{count} payments were expected, {found['rows']} found")


def opened(name: str) -> Namespace:
    """Return a namespace whose processes begin with nothing."""
    namespace = Namespace(name, state=int, concurrency=CONCURRENCY)

    @namespace.init
    async def open_account(process: Process[int]) -> None:
        process.state = 0

    return namespace


plain, banked = opened("prices.plain"), opened("prices.banked")
recorded, by_hand = opened("prices.recorded"), opened("prices.by_hand")


def paid(process: Process[int], args: PayArgs) -> int:
    process.state += args.amount
    process.emit("paid", amount=args.amount)
    return process.state


def _row(process: Process[int], args: PayArgs) -> dict[str, Any]:
    return {"account": process.process_id, "amount": args.amount}


@plain.call
async def pay(process: Process[int], args: PayArgs) -> int:
    """Pay, with no more than the state."""
    return paid(process, args)


@plain.call
def pay_in_thread(process: Process[int], args: PayArgs) -> int:
    """Pay in a plain function, which runs in a thread."""
    return paid(process, args)


@banked.call
async def pay_bank(process: Process[int], args: PayArgs, *, bank: BankResource) -> int:
    """Pay with a resource."""
    bank.charge(args.amount)
    return paid(process, args)


@recorded.call
async def pay_connection(process: Process[int], args: PayArgs, *, connection: AsyncConnection) -> int:
    """Pay, and record it by a statement of SQLAlchemy."""
    await connection.execute(_INSERT_BY_NAMES, _row(process, args))
    return paid(process, args)


@recorded.call
async def pay_driver(
    process: Process[int], args: PayArgs, *, connection: psycopg.AsyncConnection[Any]
) -> int:
    """Pay, and record it by a statement of psycopg."""
    await connection.execute(INSERT, (process.process_id, args.amount))
    return paid(process, args)


@recorded.call
async def pay_session(process: Process[int], args: PayArgs, *, connection: AsyncSession) -> int:
    """Pay, and record it as an object."""
    connection.add(PaymentRow(**_row(process, args)))
    return paid(process, args)


@recorded.call
def pay_blocking_session(process: Process[int], args: PayArgs, *, connection: Session) -> int:
    """Pay, and record it as an object, in a thread."""
    connection.add(PaymentRow(**_row(process, args)))
    return paid(process, args)


@by_hand.call
async def pay_own_engine(process: Process[int], args: PayArgs, *, database: AsyncEngine) -> int:
    """Pay, and record it in a transaction of a pool of one's own, which is committed before the step is."""
    async with database.begin() as connection:
        await connection.execute(_INSERT_BY_NAMES, _row(process, args))
    return paid(process, args)


@by_hand.call
async def pay_own_driver(process: Process[int], args: PayArgs, *, drivers: DriverPool) -> int:
    """Pay, and record it so by psycopg."""
    async with drivers.lent() as connection, connection.transaction():
        await connection.execute(INSERT, (process.process_id, args.amount))
    return paid(process, args)
