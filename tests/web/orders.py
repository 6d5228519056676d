"""Orders of two owners: callers of `a.*` see those of `a.orders`, and nothing of those of `b.x`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, Field

from progressor import Cron, Namespace, Process, Reject
from tests.acceptance.support import Gate

SEEN, HIDDEN, IDLE = "a.orders", "b.x", "a.idle"


class Order(BaseModel):
    """The state of an order."""

    item: str
    paid: int = 0
    mended: str = ""


class Open(BaseModel):
    """The arguments of a start."""

    item: str


class Pay(BaseModel):
    """The arguments of a payment."""

    amount: int = Field(gt=0)


def made(name: str, *, mark: str = "", gate: Gate | None = None) -> Namespace[Order]:
    """A namespace of orders; `mark` stands in all that its processes hold."""
    orders = Namespace(name, state=Order, feed=True)

    @orders.init
    async def place(process: Process[Order], args: Open) -> str:
        process.state = Order(item=args.item)
        process.metadata["plan"] = f"{mark}pro"
        process.emit("placed", item=f"event {args.item}")
        process.set_timer("lapse", after=timedelta(days=30))
        process.set_timer(after=timedelta(days=60))
        return f"response {args.item}"

    @orders.call
    async def pay(process: Process[Order], args: Pay) -> int:
        process.state.paid += args.amount
        process.emit("paid", amount=args.amount)
        return process.state.paid

    @orders.call
    async def echo(process: Process[Order], args: Any = None) -> Any:
        return args

    @orders.call
    async def refuse(process: Process[Order]) -> None:
        raise Reject("not today")

    @orders.call(name="break")
    async def break_it(process: Process[Order], args: Any = None) -> None:
        raise RuntimeError(f"failure {mark}{args}")

    @orders.call
    async def wait(process: Process[Order]) -> str:
        if gate is not None:
            await gate.pass_through()
        return "waited"

    @orders.timeout
    async def lapse(process: Process[Order]) -> None:
        process.emit("lapsed")

    @orders.repair(dry_run=True)
    async def mend(process: Process[Order], args: Open | None = None) -> str:
        process.state.mended = "" if args is None else args.item
        process.emit("mended", item=process.state.mended)
        return f"mended with {process.state.mended}"

    return orders


def scheduled(name: str, schedule: str, *, mark: str = "") -> Namespace[Order]:
    """The same with a schedule that is due once a year."""
    orders = made(name, mark=mark)
    orders.schedule(
        schedule, Cron("0 0 1 1 *"), start=lambda at: f"{mark}{at:%Y}", args=lambda at: {"item": "yearly"}
    )
    return orders
