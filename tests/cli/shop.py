"""The application that these tests serve. Its handlers say on stdout what they do."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pydantic import BaseModel

from progressor import Namespace, Process, Reject


class Order(BaseModel):
    item: str
    paid: int = 0


class Place(BaseModel):
    item: str


class Pay(BaseModel):
    amount: int


orders = Namespace("shop.order", state=Order)
carts = Namespace("shop.cart")


@orders.init
async def place(process: Process[Order], args: Place) -> None:
    process.state = Order(item=args.item)
    process.metadata["item"] = args.item
    process.emit("placed", item=args.item)


@orders.call
async def pay(process: Process[Order], args: Pay) -> int:
    if args.amount <= 0:
        raise Reject("amount must be positive", minimum=1)
    process.state.paid += args.amount
    process.emit("paid", amount=args.amount)
    return process.state.paid


@orders.call
async def echo(process: Process[Order], args: object) -> object:
    return {"args": args, "context": process.context}


@orders.call
async def lose(process: Process[Order]) -> None:
    raise ValueError("the parcel is lost")


@orders.call
async def wait(process: Process[Order], gate: str) -> str:
    """Run until a file appears."""
    print("step begun", flush=True)
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - another process opens the gate
        await asyncio.sleep(0.01)
    return "waited"


@orders.call
async def hog(process: Process[Order]) -> None:
    """Block the event loop."""
    print("step begun", flush=True)
    time.sleep(60)  # noqa: ASYNC251 - what a bad handler does


@orders.timeout
async def expire(process: Process[Order]) -> None:
    print("expired", flush=True)
    process.emit("expired")


@orders.repair(dry_run=True)
async def find(process: Process[Order], args: dict[str, str]) -> str:
    process.emit("found", by=args["who"])
    return f"found by {args['who']}"


@carts.init
async def fill(process: Process[object]) -> None:
    pass


both = [orders, carts]
nothing: list[Namespace] = []
odd = (orders, "carts")
number = 7
