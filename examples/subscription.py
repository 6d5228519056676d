"""A subscription that is paid and billed: run it with `python subscription.py`."""

import asyncio
from datetime import timedelta

from progressor import Engine, Namespace, Process, development_database

MONTH = timedelta(seconds=4)  # of this example

subscriptions = Namespace("subscription", state=int)  # the state is a balance


@subscriptions.init
async def begin(process: Process[int], deposit: int) -> None:
    process.state = deposit
    process.set_timer(after=MONTH)


@subscriptions.call
async def pay(process: Process[int], amount: int) -> int:
    process.state += amount
    process.emit("paid", amount=amount)
    return process.state  # the caller's answer


@subscriptions.timeout
async def bill(process: Process[int]) -> None:
    process.state -= 30
    process.emit("billed", price=30)
    process.set_timer(after=MONTH)


async def main(dsn: str) -> None:
    async with Engine(dsn, [subscriptions]) as engine:
        acme = engine.client.process(subscriptions, "acme")
        await acme.start(begin, 20, idempotency_key="signup-17")
        print("balance:", await acme.call(pay, 80, idempotency_key="payment-1"))
        await asyncio.sleep(1.5 * MONTH.total_seconds())
        process = await acme.get()
        print("a month later:", process.state)
        print("history:", ", ".join(f"{event.event_id} {event.name}" for event in process.history))
        await acme.remove()  # so that the next run begins anew


if __name__ == "__main__":
    with development_database() as dsn:
        asyncio.run(main(dsn))
