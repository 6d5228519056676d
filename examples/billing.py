"""Subscriptions as processes: run it with `python billing.py`.

It uses the PostgreSQL of PROGRESSOR_DATABASE_URL, or starts an embedded one.
"""

import asyncio
from datetime import timedelta

from pydantic import BaseModel

from progressor import Engine, Namespace, Process, Reject, Rejected, development_database

MONTH = timedelta(seconds=4)  # of this example; timedelta(days=30) works the same
PRICES = {"basic": 5, "pro": 30}


class Subscription(BaseModel):
    plan: str
    balance: int = 0


class Open(BaseModel):
    plan: str


class Pay(BaseModel):
    amount: int


billing = Namespace("billing.subscription", state=Subscription)


@billing.init
async def open(process: Process[Subscription], args: Open) -> None:
    process.state = Subscription(plan=args.plan)
    process.emit("opened", plan=args.plan)
    process.set_timer(after=MONTH)


@billing.call
async def pay(process: Process[Subscription], args: Pay) -> int:
    if args.amount <= 0:
        raise Reject("amount must be positive")
    process.state.balance += args.amount
    process.emit("paid", amount=args.amount)
    return process.state.balance


@billing.timeout
async def bill(process: Process[Subscription]) -> None:
    price = PRICES[process.state.plan]
    process.state.balance -= price
    process.emit("billed", price=price)
    process.set_timer(after=MONTH)


async def main(dsn: str) -> None:
    async with Engine(dsn, [billing]) as engine:
        acme = engine.client.process("billing.subscription", "acme")
        await acme.start(Open(plan="pro"), idempotency_key="signup-17")
        print("balance:", await acme.call("pay", Pay(amount=100), idempotency_key="payment-1"))
        print("asked again:", await acme.call("pay", Pay(amount=100), idempotency_key="payment-1"))
        try:
            await acme.call("pay", Pay(amount=-1))
        except Rejected as rejection:
            print("refused:", rejection.reason)

        async for change in acme.watch(state=True):
            if change.state.balance < 100:
                print("a month later:", change.state.balance)
                break
        process = await acme.get()
        print("history:", ", ".join(f"{event.event_id} {event.name}" for event in process.history))
        await acme.remove()  # so that the next run begins anew


if __name__ == "__main__":
    with development_database() as dsn:
        asyncio.run(main(dsn))
