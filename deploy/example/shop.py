"""What docker-compose.yml serves: orders that are paid, or lapse. Put your own application in its place."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from progressor import Namespace, Process, Reject


class Order(BaseModel):
    item: str
    paid: int = 0
    lapsed: bool = False


class Place(BaseModel):
    item: str
    lapses_after: timedelta = timedelta(days=7)


class Pay(BaseModel):
    amount: int


orders = Namespace("shop.order", state=Order)


@orders.init
async def place(process: Process[Order], args: Place) -> None:
    process.state = Order(item=args.item)
    process.set_timer(after=args.lapses_after)


@orders.call
async def pay(process: Process[Order], args: Pay) -> int:
    if args.amount <= 0:
        raise Reject("amount must be positive")
    process.state.paid += args.amount
    process.emit("paid", amount=args.amount)
    process.unset_timer()
    return process.state.paid


@orders.timeout
async def lapse(process: Process[Order]) -> None:
    process.state.lapsed = True
    process.emit("lapsed")
