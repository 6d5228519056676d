"""A subscription as a process.

What the outside must do is noted in the state by the step that decides it: a charge as `due`, a refund or a
letter in `todo`. The timer does it afterwards, one thing a step, with a key of its own, and again after a
failure. So nothing is forgotten if the worker dies, and nothing is done twice. A charge that is due goes
first: a mail service that is down delays none.
"""

import calendar
from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from progressor import Namespace, Process, Reject, RetryPolicy

from .outside import Mailer, Payments
from .tables import invoices

AT_ONCE = timedelta(0)
NO_ANSWER = timedelta(days=1)  # then a charge is sent again, with the same key
DUNNING = (timedelta(days=3), timedelta(days=5), timedelta(days=7))  # until the next try


class Todo(BaseModel):
    """A thing that the outside must do: give back money, or send a letter."""

    what: Literal["refund", "letter"]
    key: str
    amount: int = 0
    charge: str = ""  # that is given back
    letter: str = ""
    facts: dict[str, Any] = {}


class Subscription(BaseModel):
    email: str
    price: int  # cents a month
    day: int  # of the month, on which it is renewed; the last one where a month is shorter
    renews: datetime  # the end of the time that is paid
    due: datetime  # the next renewal, or the next try
    status: Literal["trial", "active", "past due", "ended"] = "trial"
    month: int = 1
    refused: int = 0  # tries of this month
    todo: list[Todo] = []
    letters: int = 0


class Subscribe(BaseModel):
    email: str
    price: int
    trial_days: int = 14


class Charged(BaseModel):
    """The provider's answer to a charge."""

    key: str
    amount: int


class Refused(BaseModel):
    key: str
    reason: str


class Refund(BaseModel):
    invoice: int
    amount: int


subscriptions = Namespace(
    "billing.subscription",
    state=Subscription,
    retry_policy=RetryPolicy(initial_interval=timedelta(minutes=1), max_attempts=None),
)


@subscriptions.init
async def subscribe(process: Process[Subscription], args: Subscribe) -> datetime:
    due = process.now + timedelta(days=args.trial_days)
    process.state = Subscription(email=args.email, price=args.price, day=due.day, renews=due, due=due)
    process.emit("subscribed", price=args.price)
    write(process, "welcome", trial_until=due.date().isoformat())
    wait(process)
    return due


@subscriptions.timeout
async def wake(process: Process[Subscription], *, payments: Payments, mailer: Mailer) -> None:
    state = process.state
    if state.status != "ended" and state.due <= process.now:
        # The month begins, a refused charge is tried again, or a charge has had no answer.
        await payments.charge(charge_key(process), process.process_id, state.price)
        state.due = process.now + NO_ANSWER
    elif state.todo:
        match (todo := state.todo.pop(0)).what:
            case "refund":
                await payments.refund(todo.key, todo.charge, todo.amount)
            case "letter":
                await mailer.send(todo.key, state.email, todo.letter, todo.facts)
    wait(process)


@subscriptions.call
async def charged(
    process: Process[Subscription], args: Charged, *, connection: AsyncConnection
) -> int | None:
    """Return the number of the invoice, which is there if the step is saved, and only then."""
    state = process.state
    expect(process, args.key)
    state.month, state.refused = state.month + 1, 0
    if state.status == "ended":
        # Cancelled while the money was on its way.
        give_back(process, args.key, args.amount)
        wait(process)
        return None
    row = sa.insert(invoices).values(
        subscription=process.process_id, charge=args.key, issued_on=process.now.date(), amount=args.amount
    )
    number: int = (await connection.execute(row.returning(invoices.c.number))).scalar_one()
    process.emit("paid", invoice=number, amount=args.amount)
    state.status, state.renews = "active", next_month(state.renews, state.day)
    state.due = state.renews
    write(process, "invoice", number=number, amount=args.amount)
    wait(process)
    return number


@subscriptions.call
async def refused(process: Process[Subscription], args: Refused) -> None:
    state = process.state
    expect(process, args.key)
    process.emit("refused", reason=args.reason)
    if state.status == "ended":
        state.month += 1  # the last charge is answered
    elif state.refused == len(DUNNING):
        end(process, "ended unpaid")
    else:
        state.due = process.now + DUNNING[state.refused]
        state.status, state.refused = "past due", state.refused + 1
        write(process, "reminder", reason=args.reason, next_try=state.due.date().isoformat())
    wait(process)


@subscriptions.call
async def refund(process: Process[Subscription], args: Refund, *, connection: AsyncConnection) -> int:
    """Return how many cents of the invoice are left."""
    of = (invoices.c.number == args.invoice) & (invoices.c.subscription == process.process_id)
    found = await connection.execute(sa.select(invoices).where(of))
    invoice = found.one_or_none()
    left = 0 if invoice is None else invoice.amount - invoice.refunded
    if invoice is None or not 0 < args.amount <= left:
        raise Reject("no such amount is left of this invoice", left=left)
    refunded = sa.update(invoices).where(of).values(refunded=invoices.c.refunded + args.amount)
    await connection.execute(refunded)
    give_back(process, invoice.charge, args.amount)
    wait(process)
    return int(left - args.amount)


@subscriptions.call
async def cancel(process: Process[Subscription]) -> None:
    if process.state.status == "ended":
        raise Reject("it has ended")
    end(process, "cancelled")
    wait(process)


@subscriptions.repair(dry_run=True)
async def resume(process: Process[Subscription]) -> None:
    """Go on where a failure broke it; what is still to do is done again, with its key."""
    wait(process)


def charge_key(process: Process[Subscription]) -> str:
    return f"{process.process_id}/charge/{process.state.month}.{process.state.refused}"


def expect(process: Process[Subscription], key: str) -> None:
    """Refuse an answer to another charge than the last one."""
    if key != charge_key(process):
        raise Reject("no charge of this key waits for an answer", key=key)


def give_back(process: Process[Subscription], charge: str, amount: int) -> None:
    """Note that money of a charge is to be given back."""
    process.emit("refunded", charge=charge, amount=amount)
    key = f"{process.process_id}/refund/{process.last_event_id}"
    process.state.todo.append(Todo(what="refund", key=key, charge=charge, amount=amount))


def write(process: Process[Subscription], letter: str, **facts: Any) -> None:
    """Note a letter that is to be sent."""
    state = process.state
    state.letters += 1
    key = f"{process.process_id}/letter/{state.letters}"
    state.todo.append(Todo(what="letter", key=key, letter=letter, facts=facts))


def end(process: Process[Subscription], how: str) -> None:
    process.state.status = "ended"
    process.emit(how)
    write(process, how)


def wait(process: Process[Subscription]) -> None:
    """Set the timer: at once if something is to do, else for the next renewal or try."""
    if process.state.todo:
        process.set_timer(after=AT_ONCE)
    elif process.state.status == "ended":
        process.unset_timer()
    else:
        process.set_timer(at=process.state.due)


def next_month(moment: datetime, day: int) -> datetime:
    """Return the same time in the next month, on its day `day`, or its last."""
    year, month = (moment.year + 1, 1) if moment.month == 12 else (moment.year, moment.month + 1)
    last = calendar.monthrange(year, month)[1]
    return moment.replace(year=year, month=month, day=min(day, last))
