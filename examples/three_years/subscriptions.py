"""A subscription as a process: a trial, an invoice on the last day of each month, and dunning beside it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time, timedelta

from pydantic import AwareDatetime, BaseModel

from progressor import Monthly, Namespace, Process, Reject, RetryPolicy

from .plan import BERLIN
from .provider import Declined, Provider

NAMESPACE = "three_years.subscription"
INVOICES = Monthly(31, at=time(9), tz="Europe/Berlin")
# Until the next try; after the last one the subscription ends.
DUNNING = (timedelta(days=5), timedelta(days=14), timedelta(days=14))


class Invoice(BaseModel):
    """An invoice that the bank has declined, so many times."""

    month: str
    cents: int
    declined: int


class Subscription(BaseModel):
    plan: str
    since: AwareDatetime  # the end of the trial
    unpaid: list[Invoice] = []
    reminders: int = 0
    ended: bool = False


class Subscribe(BaseModel):
    plan: str
    trial_days: int


subscriptions = Namespace(
    NAMESPACE,
    state=Subscription,
    # An outage of a day is outlived; a bug is not tried again.
    retry_policy=RetryPolicy(
        initial_interval=timedelta(minutes=1),
        max_interval=timedelta(hours=1),
        max_attempts=60,
        non_retryable=(KeyError,),
    ),
)


@subscriptions.init
async def subscribe(process: Process[Subscription], args: Subscribe) -> None:
    since = process.now + timedelta(days=args.trial_days)
    process.state = Subscription(plan=args.plan, since=since)
    process.emit("subscribed")
    if args.trial_days:
        process.set_timer("trial", at=since)
    else:
        activate(process)


@subscriptions.timeout("trial")
async def end_trial(process: Process[Subscription]) -> None:
    process.emit("trial ended")
    activate(process)


@subscriptions.timeout("invoice")
async def invoice(process: Process[Subscription], *, provider: Provider, prices: Mapping[str, int]) -> None:
    """Charge a month. What the bank declines is left to the dunning, and the next month comes as ever."""
    nominal = process.task.nominal
    assert nominal is not None  # noqa: S101 - a timer that recurs has one
    day = nominal.date()
    month, cents = f"{day:%Y-%m}", share(process, day, prices[process.state.plan])
    process.emit("invoiced", month=month, cents=cents, nominal=nominal)
    await settle(process, Invoice(month=month, cents=cents, declined=0), provider)
    if process.state.unpaid and "dunning" not in process.timers:
        remind(process)


@subscriptions.timeout("dunning")
async def dun(process: Process[Subscription], *, provider: Provider) -> None:
    """Try all that is unpaid once more."""
    unpaid, process.state.unpaid = process.state.unpaid, []
    for each in unpaid:
        await settle(process, each, provider)
    if not process.state.unpaid:
        process.state.reminders = 0
    elif process.state.reminders < len(DUNNING):
        remind(process)
    else:
        end(process, "ended unpaid")


@subscriptions.call
async def cancel(process: Process[Subscription]) -> None:
    if process.state.ended:
        raise Reject("it has ended")
    end(process, "cancelled")


def activate(process: Process[Subscription]) -> None:
    process.set_timer("invoice", every=INVOICES, catch_up="all")


def share(process: Process[Subscription], last: date, price: int) -> int:
    """Return the price, or in the month in which the trial ended the part for its days, rounded down."""
    since = process.state.since.astimezone(BERLIN)
    is_first = (since.year, since.month) == (last.year, last.month)
    return price * (last.day - since.day + 1) // last.day if is_first else price


async def settle(process: Process[Subscription], invoice: Invoice, provider: Provider) -> None:
    """Ask for the money of an invoice, under a key that a second run of this step has too."""
    key = f"{process.process_id}/{invoice.month}/{invoice.declined}"
    try:
        await provider.charge(key, process.process_id, invoice.month, invoice.cents)
    except Declined:
        invoice.declined += 1
        process.state.unpaid.append(invoice)
        process.emit("declined", month=invoice.month, cents=invoice.cents)
    else:
        process.emit("paid", month=invoice.month, cents=invoice.cents)


def remind(process: Process[Subscription]) -> None:
    process.set_timer("dunning", after=DUNNING[process.state.reminders])
    process.state.reminders += 1
    process.emit("reminded", number=process.state.reminders)


def end(process: Process[Subscription], how: str) -> None:
    process.state.ended = True
    process.emit(how)
    for name in process.timers:
        process.unset_timer(name)
