"""The shop's read model: what each customer bought, and how each day sold, kept by a projection.

Read it after `shop.py`: it is what a user of Progressor writes too. The tables are in the database of the
processes, in a schema of their own, and a run has its own rows.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection

from progressor import Client, FeedEvent, Projection, StorageUnavailable

from .shop import NAMESPACE

_TABLES = """
CREATE SCHEMA IF NOT EXISTS cdnow;
CREATE TABLE IF NOT EXISTS cdnow.customers (
    run text NOT NULL,
    process_id text NOT NULL,
    purchases integer NOT NULL,
    cds integer NOT NULL,
    cents bigint NOT NULL,
    event_id bigint NOT NULL,
    PRIMARY KEY (run, process_id)
);
CREATE TABLE IF NOT EXISTS cdnow.days (
    run text NOT NULL,
    day date NOT NULL,
    purchases integer NOT NULL,
    cds integer NOT NULL,
    cents bigint NOT NULL,
    PRIMARY KEY (run, day)
)
"""
_BOUGHT = """
WITH day AS (
    INSERT INTO cdnow.days AS d (run, day, purchases, cds, cents)
    VALUES (%(run)s, %(day)s, 1, %(cds)s, %(cents)s)
    ON CONFLICT (run, day) DO UPDATE SET
        purchases = d.purchases + 1, cds = d.cds + excluded.cds, cents = d.cents + excluded.cents
)
INSERT INTO cdnow.customers AS c (run, process_id, purchases, cds, cents, event_id)
VALUES (%(run)s, %(process_id)s, 1, %(cds)s, %(cents)s, %(event_id)s)
ON CONFLICT (run, process_id) DO UPDATE SET
    purchases = c.purchases + 1, cds = c.cds + excluded.cds, cents = c.cents + excluded.cents,
    event_id = excluded.event_id
"""
_GONE = """
WITH customer AS (
    DELETE FROM cdnow.customers WHERE run = %(run)s AND process_id = %(process_id)s
)
DELETE FROM cdnow.days
WHERE run = %(run)s AND NOT EXISTS (
    SELECT FROM cdnow.customers WHERE run = %(run)s AND process_id <> %(process_id)s
)
"""

sales = Projection("cdnow.sales")


@sales.on(NAMESPACE, "Purchased")
async def add_purchase(event: FeedEvent, connection: AsyncConnection) -> None:
    """Add a purchase to its customer and to its day."""
    bought = {name: event.payload[name] for name in ("day", "cds", "cents")}
    await connection.execute(_BOUGHT, _row_of(event) | bought)


@sales.on(NAMESPACE, kind="removed")
async def forget_customer(event: FeedEvent, connection: AsyncConnection) -> None:
    """Delete a customer's row. What was sold stays sold, until the last customer of the run is gone."""
    await connection.execute(_GONE, _row_of(event))


@sales.clear
async def clear(connection: AsyncConnection) -> None:
    """Empty the tables, before they are built anew."""
    await connection.execute("DELETE FROM cdnow.customers")
    await connection.execute("DELETE FROM cdnow.days")


def _row_of(event: FeedEvent) -> dict[str, Any]:
    """Return the key of a customer's row, and the id of the event."""
    run = event.process_id.rpartition("-")[0]
    return {"run": run, "process_id": event.process_id, "event_id": event.event_id}


class CustomerRow(NamedTuple):
    """A customer in the read model; `event_id` is the last purchase that the row is made of."""

    process_id: str
    purchases: int
    cds: int
    cents: int
    event_id: int


class DayRow(NamedTuple):
    """A day in the read model: what all customers bought on it."""

    day: date
    purchases: int
    cds: int
    cents: int


class Sales(NamedTuple):
    """The rows of a run: customers by what they paid, days by the CDs sold; the best first."""

    customers: list[CustomerRow]
    days: list[DayRow]


async def read_sales(connection: AsyncConnection, run: str) -> Sales:
    """Read the rows of a run, as any application would."""
    customers = await connection.execute(
        "SELECT process_id, purchases, cds, cents, event_id FROM cdnow.customers "
        "WHERE run = %s ORDER BY cents DESC, process_id",
        (run,),
    )
    rows = [CustomerRow(*row) for row in await customers.fetchall()]
    days = await connection.execute(
        "SELECT day, purchases, cds, cents FROM cdnow.days "
        "WHERE run = %s ORDER BY cds DESC, cents DESC, day",
        (run,),
    )
    return Sales(rows, [DayRow(*row) for row in await days.fetchall()])


async def connect(dsn: str) -> AsyncConnection:
    """Open a connection; a URL may name a driver, as those of SQLAlchemy do."""
    plain = re.sub(r"^(postgres(?:ql)?)\+\w+(?=://)", r"\1", dsn)
    return await AsyncConnection.connect(plain, autocommit=True, prepare_threshold=None)


async def make_tables(dsn: str) -> None:
    """Make the tables where they are missing; StorageUnavailable if that is not allowed."""
    try:
        async with await connect(dsn) as connection, connection.transaction():
            # Of two runs that begin at once, one makes them.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('cdnow'))")
            await connection.execute(_TABLES)
    except psycopg.Error as error:
        raise StorageUnavailable(f"the tables of the read model cannot be made: {error}") from error


async def mend(client: Client) -> None:
    """Build the read model anew if the feed has no longer what comes next: after a week without a run."""
    for known in await client.subscriptions():
        if known.name == sales.subscription and known.is_lost:
            await client.move_subscription(known.name, "beginning")
