"""The shop: a customer is a process, a purchase is a call, a silence is a timer.

This file and `read_model.py` are what a user of Progressor writes; the rest of this folder only asks them.
"""

from __future__ import annotations

from datetime import date, timedelta

from pydantic import BaseModel

from progressor import Namespace, Process, Reject

NAMESPACE = "shop.customer"

# Time is compressed: a day takes twenty milliseconds, so that eighteen months pass in eleven seconds.
DAY = timedelta(milliseconds=20)
QUIET_AFTER = 30 * DAY

JAMMED_TILL = 13


class Customer(BaseModel):
    """A customer's state: the totals so far, in whole cents."""

    purchases: int = 0
    cds: int = 0
    cents: int = 0
    limit: int = 200_00


class Buy(BaseModel):
    """What the shop is asked when somebody buys."""

    line: int
    day: date
    cds: int
    cents: int
    till: int = 1


class Refund(BaseModel):
    """What the shop is asked when somebody wants money back."""

    cents: int


class Total(BaseModel):
    """What a customer has bought so far: the answer to a purchase."""

    purchases: int
    cds: int
    cents: int


class Purchased(BaseModel):
    """The event of a purchase: `line` is its line of the file."""

    line: int
    day: date
    cds: int
    cents: int


class Fix(BaseModel):
    """What an operator changes to repair a customer."""

    limit: int


class OverLimitError(Exception):
    """Nobody thought of so large a purchase: a bug, so it breaks the process."""


class TillJamError(Exception):
    """The till is out of order: the process breaks, though nothing is wrong with the customer."""


shop = Namespace(NAMESPACE, state=Customer, feed=True)


@shop.init
async def register(process: Process[Customer], args: Buy) -> Total:
    """The first purchase makes the customer. After a repair, with a higher limit say, it runs anew."""
    process.state = process.state or Customer()
    return sell(process, args)


@shop.call
async def purchase(process: Process[Customer], args: Buy) -> Total:
    """Every further purchase; the customer's running total."""
    return sell(process, args)


@shop.call
async def refund(process: Process[Customer], args: Refund) -> Total:
    """Money back, but no more than was paid."""
    customer = process.state
    if args.cents > customer.cents:
        raise Reject("no refund beyond what was paid", paid=customer.cents, asked=args.cents)
    customer.cents -= args.cents
    process.emit("refunded", cents=args.cents)
    return total(customer)


@shop.timeout
async def go_quiet(process: Process[Customer]) -> None:
    """Nothing was bought for thirty days."""
    process.emit("went_quiet", purchases=process.state.purchases)
    process.metadata["quiet"] = True


@shop.repair(dry_run=True)
async def raise_limit(process: Process[Customer], args: Fix) -> None:
    """A customer whose very first purchase broke has no state yet."""
    process.state = process.state or Customer()
    process.state.limit = args.limit


def sell(process: Process[Customer], args: Buy) -> Total:
    """Refuse what makes no sense, break where the shop is broken, else count and wait for more."""
    customer = process.state
    if args.cds < 1:
        raise Reject("a purchase needs at least one CD", cds=args.cds)
    if args.till == JAMMED_TILL:
        raise TillJamError(f"till {args.till} is jammed")
    if args.cents > customer.limit:
        raise OverLimitError(f"{args.cents} cents, the limit is {customer.limit}")
    customer.purchases += 1
    customer.cds += args.cds
    customer.cents += args.cents
    process.emit(Purchased(line=args.line, day=args.day, cds=args.cds, cents=args.cents))
    process.metadata["quiet"] = False
    process.set_timer(after=QUIET_AFTER)
    return total(customer)


def total(customer: Customer) -> Total:
    """A customer's running total."""
    return Total(purchases=customer.purchases, cds=customer.cds, cents=customer.cents)
