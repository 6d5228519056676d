"""The billing service with DBOS: a workflow for each charge, and for each request.

Rule: a charge is a workflow whose id is the key of the charge. It is enqueued with a delay until it is due,
so that nothing sleeps in memory for a month, and each month begins with the newest code. The state of a
subscription is a row. What a workflow reads and writes there is a transaction of the datasource, which is
committed with its checkpoint. Letters and repayments are workflows of a queue, retried by themselves.

The invoices and the clients of the services outside are those of `examples/billing_service`.
"""

from __future__ import annotations

import asyncio
import calendar
import os
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from dbos import DBOS, AsyncSQLAlchemyDatasource, SetEnqueueOptions, SetWorkflowID

from examples.billing_service.outside import Mailer, Payments
from examples.billing_service.tables import invoices, metadata

QUEUE = "billing"
NO_ANSWER = timedelta(days=1)  # then a charge is sent again, with the same key
LATE = timedelta(days=90)  # for so long a charge may be answered after the end
DUNNING = (timedelta(days=3), timedelta(days=5), timedelta(days=7))  # until the next try
RETRIES: dict[str, Any] = {
    "retries_allowed": True,
    "interval_seconds": float(os.environ.get("BILLING_RETRY_SECONDS", "60")),  # then longer, up to an hour
    "max_attempts": 1_000_000,
}

subscriptions = sa.Table(
    "subscriptions",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("email", sa.Text, nullable=False),
    sa.Column("price", sa.Integer, nullable=False),  # cents a month
    sa.Column("day", sa.Integer, nullable=False),  # of the month; the last one where a month is shorter
    sa.Column("renews", sa.DateTime(timezone=True), nullable=False),  # the end of the time that is paid
    sa.Column("due", sa.DateTime(timezone=True), nullable=False),  # the next renewal, or the next try
    sa.Column("status", sa.Text, nullable=False, server_default="trial"),
)


class Refused(Exception):
    """The request cannot be met; the text says why."""


class Paid(NamedTuple):
    number: int
    due: datetime


class Outside:
    """The services outside: set when the application starts."""

    payments: Payments
    mailer: Mailer


async def _datasource(url: str) -> AsyncSQLAlchemyDatasource:
    datasource = await AsyncSQLAlchemyDatasource.create(url)
    await datasource.engine.dispose()  # its connections belong to this event loop
    return datasource


ds = asyncio.run(_datasource(os.environ["BILLING_DATABASE_URL"]))


# Steps: what is outside, and the clock.


def clock() -> datetime:
    return datetime.now(UTC)


@DBOS.step()
async def now() -> datetime:
    return clock()


@DBOS.step(**RETRIES)
async def charge(key: str, name: str, price: int) -> None:
    await Outside.payments.charge(key, name, price)


@DBOS.step(**RETRIES)
async def repay(key: str, of: str, amount: int) -> None:
    await Outside.payments.refund(key, of, amount)


@DBOS.step(**RETRIES)
async def post(key: str, to: str, letter: str, facts: dict[str, Any]) -> None:
    await Outside.mailer.send(key, to, letter, facts)


# Transactions: each is committed with the checkpoint of its step.


@ds.transaction
async def insert(name: str, email: str, price: int, due: datetime) -> None:
    row = {"name": name, "email": email, "price": price, "day": due.day, "renews": due, "due": due}
    if (await _find(name)) is not None:
        raise Refused(f"there is a subscription {name} already")
    await ds.sql_session().execute(sa.insert(subscriptions).values(row))


@ds.transaction
async def price_due(name: str) -> int | None:
    """Return the price; None if the subscription has ended."""
    row = await _find(name)
    return None if row is None or row.status == "ended" else row.price


@ds.transaction
async def email_of(name: str) -> str:
    return (await _find(name)).email


@ds.transaction
async def settle(name: str, key: str, amount: int, today: datetime) -> Paid | None:
    """Note an invoice and the next renewal; None if the subscription has ended meanwhile."""
    row = await _find(name)
    if row.status == "ended":
        return None
    due = next_month(row.renews, row.day)
    await _update(name, status="active", renews=due, due=due)
    values = {"subscription": name, "charge": key, "issued_on": today.date(), "amount": amount}
    found = await ds.sql_session().execute(sa.insert(invoices).values(values).returning(invoices.c.number))
    return Paid(found.scalar_one(), due)


@ds.transaction
async def dun(name: str, due: datetime | None) -> bool:
    """Note the next try, or the end; False if the subscription has ended meanwhile."""
    row = await _find(name)
    if row.status == "ended":
        return False
    await _update(name, **({"status": "past due", "due": due} if due else {"status": "ended"}))
    return True


@ds.transaction
async def end(name: str) -> None:
    row = await _find(name)
    if row is None or row.status == "ended":
        raise Refused("it has ended")
    await _update(name, status="ended")


@ds.transaction
async def take_back(name: str, number: int, amount: int) -> tuple[str, int]:
    """Note a refund on its invoice; return the charge, and how many cents are left."""
    of = (invoices.c.number == number) & (invoices.c.subscription == name)
    invoice = (await ds.sql_session().execute(sa.select(invoices).where(of))).one_or_none()
    left = 0 if invoice is None else invoice.amount - invoice.refunded
    if invoice is None or not 0 < amount <= left:
        raise Refused(f"no such amount is left of this invoice: {left}")
    await ds.sql_session().execute(sa.update(invoices).where(of).values(refunded=invoice.refunded + amount))
    return invoice.charge, left - amount


# Workflows: the requests, whose ids are their idempotency keys.


@DBOS.workflow()
async def subscribe(name: str, email: str, price: int, trial_days: int = 14) -> datetime:
    due = await now() + timedelta(days=trial_days)
    await insert(name, email, price, due)
    await write(name, "welcome", trial_until=due.date().isoformat())
    await charge_at(due, name, month=1, refusals=0)
    return due


@DBOS.workflow()
async def refund(name: str, number: int, amount: int) -> int:
    """Return how many cents of the invoice are left."""
    of, left = await take_back(name, number, amount)
    await give_back(of, amount)
    return left


@DBOS.workflow()
async def cancel(name: str) -> None:
    await end(name)
    await write(name, "cancelled")


# Workflows: a charge, and what it leads to.


@DBOS.workflow()
async def renew(name: str, month: int, refusals: int) -> None:
    """Ask for the money of a month, and do what the provider's answer wants."""
    answer = await answer_of(DBOS.workflow_id, name)
    if answer is None:
        return
    today = await now()
    if "refused" in answer:
        await on_refused(name, month, refusals, today, answer["refused"])
    elif (paid := await settle(name, DBOS.workflow_id, answer["amount"], today)) is None:
        await give_back(DBOS.workflow_id, answer["amount"])  # cancelled while the money was on its way
    else:
        await write(name, "invoice", number=paid.number, amount=answer["amount"])
        await charge_at(paid.due, name, month + 1, refusals=0)


async def answer_of(key: str, name: str) -> dict[str, Any] | None:
    """Ask day by day until there is an answer; after the end only wait for one."""
    asked = False
    while (price := await price_due(name)) is not None:
        await charge(key, name, price)
        asked = True
        if answer := await DBOS.recv_async("answer", NO_ANSWER.total_seconds()):
            return answer
    return await DBOS.recv_async("answer", LATE.total_seconds()) if asked else None


async def on_refused(name: str, month: int, refusals: int, today: datetime, reason: str) -> None:
    due = None if refusals == len(DUNNING) else today + DUNNING[refusals]
    if not await dun(name, due):
        return
    if due is None:
        await write(name, "ended unpaid")
    else:
        await write(name, "reminder", reason=reason, next_try=due.date().isoformat())
        await charge_at(due, name, month, refusals + 1)


@DBOS.workflow()
async def send_letter(name: str, letter: str, facts: dict[str, Any]) -> None:
    await post(DBOS.workflow_id, await email_of(name), letter, facts)


@DBOS.workflow()
async def send_back(of: str, amount: int) -> None:
    await repay(DBOS.workflow_id, of, amount)


async def charge_at(due: datetime, name: str, month: int, refusals: int) -> None:
    delay = max(0.0, (due - await now()).total_seconds())
    with SetWorkflowID(f"{name}/charge/{month}.{refusals}"), SetEnqueueOptions(delay_seconds=delay):
        await DBOS.enqueue_workflow_async(QUEUE, renew, name, month, refusals)


async def write(name: str, letter: str, **facts: Any) -> None:
    """Enqueue a letter; a mail service that is down delays nothing else."""
    with SetWorkflowID(f"{DBOS.workflow_id}/letter/{letter}"):
        await DBOS.enqueue_workflow_async(QUEUE, send_letter, name, letter, facts)


async def give_back(of: str, amount: int) -> None:
    with SetWorkflowID(f"{DBOS.workflow_id}/refund"):
        await DBOS.enqueue_workflow_async(QUEUE, send_back, of, amount)


# The provider's webhook. It may be repeated: the key of the charge makes it one message.


async def on_charged(key: str, amount: int) -> None:
    await DBOS.send_async(key, {"amount": amount}, "answer", idempotency_key=f"{key}/charged")


async def on_refusal(key: str, reason: str) -> None:
    await DBOS.send_async(key, {"refused": reason}, "answer", idempotency_key=f"{key}/refused")


def launch() -> None:
    """Start DBOS on the database of the service; what was begun before goes on."""
    DBOS(
        config={
            "name": "billing",
            "system_database_url": os.environ["BILLING_DATABASE_URL"],
            "application_version": "1",  # else what waits in the queue is left to the code of its own day
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    DBOS.register_queue(QUEUE)


async def _find(name: str) -> Any:
    of = subscriptions.c.name == name
    return (await ds.sql_session().execute(sa.select(subscriptions).where(of))).one_or_none()


async def _update(name: str, **values: Any) -> None:
    of = subscriptions.c.name == name
    await ds.sql_session().execute(sa.update(subscriptions).where(of).values(values))


def next_month(moment: datetime, day: int) -> datetime:
    """Return the same time in the next month, on its day `day`, or its last."""
    year, month = (moment.year + 1, 1) if moment.month == 12 else (moment.year, moment.month + 1)
    last = calendar.monthrange(year, month)[1]
    return moment.replace(year=year, month=month, day=min(day, last))
