"""A subscription that is paid and billed: run it with `python subscription.py`."""

import asyncio
from datetime import time

from progressor import Engine, Monthly, Namespace, Process, development_database

subscriptions = Namespace("subscription", state=int)  # the state is a balance


@subscriptions.init
async def begin(process: Process[int], deposit: int) -> None:
    process.state = deposit
    process.set_timer("bill", every=Monthly(31, at=time(9), tz="Europe/Berlin"))  # or the last day


@subscriptions.call
async def pay(process: Process[int], amount: int) -> int:
    process.state += amount
    process.emit("paid", amount=amount)
    return process.state  # the caller's answer


@subscriptions.timeout("bill")
async def bill(process: Process[int]) -> None:
    process.state -= 30
    process.emit("billed", price=30, due=process.task.nominal)


async def main(dsn: str) -> None:
    async with Engine(dsn, [subscriptions]) as engine:
        acme = engine.client.process(subscriptions, "acme")
        await acme.start(begin, 20, idempotency_key="signup-17")
        print("balance:", await acme.call(pay, 80, idempotency_key="payment-1"))
        await acme.fire_timer("bill")  # not to wait for the end of the month
        print("billed, and paid:", await acme.call(pay, 30, idempotency_key="payment-2"))
        process = await acme.get()
        print("history:", ", ".join(f"{event.event_id} {event.name}" for event in process.history))
        await acme.remove()  # so that the next run begins anew


if __name__ == "__main__":
    with development_database() as dsn:
        asyncio.run(main(dsn))
