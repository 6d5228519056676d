"""Orders, of which calls do as they are told."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pydantic import BaseModel, Field

from progressor import Intent, Namespace, Process, Reject, Task
from tests.acceptance.support import Gate

NS = "shop.order"


class Order(BaseModel):
    item: str
    paid: Decimal = Decimal(0)


class Open(BaseModel):
    item: str
    count: int = Field(default=1, ge=1)


class Pay(BaseModel):
    amount: Decimal = Field(gt=0)


def make(gate: Gate | None = None) -> Namespace:
    """The namespace; its call `wait` stops at the gate."""
    orders = Namespace(NS, state=Order, feed=True)

    @orders.init
    async def place(process: Process[Order], args: Open) -> str:
        process.state = Order(item=args.item)
        process.emit("placed", item=args.item)
        if args.item == "nothing":
            raise Reject("there is none", item=args.item)
        return f"{args.count} x {args.item}"

    @orders.call
    async def pay(process: Process[Order], args: Pay) -> Decimal:
        process.state.paid += args.amount
        process.emit("paid", amount=args.amount)
        return process.state.paid

    @orders.call
    async def echo(process: Process[Order], args: Any = None) -> Any:
        return args

    @orders.call
    async def refuse(process: Process[Order]) -> None:
        raise Reject("not today", day="Sunday")

    @orders.call(name="break")
    async def break_it(process: Process[Order]) -> None:
        raise RuntimeError("a secret of the handler")

    @orders.call
    async def wait(process: Process[Order]) -> str:
        assert gate is not None
        await gate.pass_through()
        return "waited"

    @orders.timeout
    async def lapse(process: Process[Order]) -> None:
        process.emit("lapsed")

    @orders.repair(dry_run=True)
    async def mend(process: Process[Order], args: Pay | None = None) -> str:
        return "mended"

    return orders


class Turning:
    """Answers with the bytes it gets, turned round, and keeps them."""

    async def process(self, task: Task, process: Process[Any]) -> Intent:
        data = task.args or b""
        return Intent(response=data[::-1], aux_state=data)


def raw() -> Namespace:
    """A namespace in bytes."""
    return Namespace("shop.raw", handler=Turning())


def till() -> Namespace:
    """A namespace in which nothing breaks, whatever is asked of it."""
    tills = Namespace("shop.till", state=Order)

    @tills.init
    async def place(process: Process[Order], args: Open) -> str:
        process.state = Order(item=args.item)
        return args.item

    @tills.call
    async def count(process: Process[Order], args: Open) -> int:
        if args.count > 7:
            raise Reject("too many", most=7)
        return args.count

    @tills.timeout
    async def lapse(process: Process[Order]) -> None:
        process.emit("lapsed")

    return tills
