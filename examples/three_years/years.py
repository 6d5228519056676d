"""The three years, lived through: sign-ups, cancellations, an outage, and a release with a bug."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from progressor import Client, Event, Rejected
from progressor.testing import BrokenInWorld, World

from . import plan
from .calculation import Fact, Life
from .plan import PRICES, Customer
from .provider import Charge, Provider
from .subscriptions import NAMESPACE, Subscribe, cancel, subscribe, subscriptions

WITH_BUG = {name: price for name, price in PRICES.items() if name != plan.FORGOTTEN}


@dataclass(frozen=True, slots=True)
class Years:
    """What came of the years: lives as their histories tell them, and what the provider has booked."""

    lives: Mapping[str, Life]
    book: Sequence[Charge]
    failures: int
    broken: int
    repaired: int


@dataclass
class _Course:
    """The course of the years: one world after the other on the same database, a release each."""

    dsn: str
    customers: Sequence[Customer]
    provider: Provider
    now: datetime = plan.BEGIN
    broken: set[str] = field(default_factory=set)
    repaired: int = 0

    @asynccontextmanager
    async def release(self, prices: Mapping[str, int]) -> AsyncIterator[World]:
        """Run a release of the handlers, which differs from others by its prices."""
        resources = {"provider": self.provider, "prices": prices}
        async with World(self.dsn, [subscriptions], now=self.now, resources=resources) as world:
            yield world
            self.now = world.now

    async def live(self, world: World, until: datetime) -> None:
        """Let time pass until then; customers come and go at their times."""
        starts = [(each.starts, self._start, each) for each in self.customers]
        ends = [(each.cancels, self._cancel, each) for each in self.customers if each.cancels is not None]
        visits = [each for each in starts + ends if world.now <= each[0] < until]
        for at, visit, customer in sorted(visits, key=lambda each: each[0]):
            await self._advance(world, at)
            await visit(world.client, customer)
        await self._advance(world, until)

    async def repair(self, world: World) -> None:
        """Repair all that the bug broke: their timers come back by themselves."""
        bulk = await world.client.repair_all(NAMESPACE, simple=True, detail_like="KeyError%", rate=1000)
        while not bulk.status.is_final:
            await asyncio.sleep(0.02)  # a bulk runs in real time
            bulk = await world.client.bulk(bulk.bulk_id)
        self.repaired += bulk.repaired
        await world.settle()

    async def _advance(self, world: World, to: datetime) -> None:
        try:
            await world.advance(to=to)
        except BrokenInWorld as error:
            self.broken |= {process.process_id for process in error.processes}

    async def _start(self, client: Client, customer: Customer) -> None:
        args = Subscribe(plan=customer.plan, trial_days=customer.trial_days)
        await client.start(subscribe, customer.name, args, idempotency_key="sign-up")

    async def _cancel(self, client: Client, customer: Customer) -> None:
        with suppress(Rejected):  # it has ended unpaid
            await client.call(cancel, customer.name, idempotency_key="cancel")


async def live(dsn: str, customers: Sequence[Customer], note: Callable[[str], None]) -> Years:
    """Live through the plan on a migrated database that nobody else works on; leave nothing there."""
    course = _Course(dsn, customers, Provider(customers))
    async with course.release(PRICES) as world:
        await _forget(world.client)
        await course.live(world, plan.OUTAGE_BEGINS)
        note("the provider is out for a day")
        course.provider.is_out = True
        await course.live(world, plan.OUTAGE_ENDS)
        course.provider.is_out = False
        await course.live(world, plan.BUG_DEPLOYED)
    note(f"a release forgets the price of {plan.FORGOTTEN!r}")
    async with course.release(WITH_BUG) as world:
        await course.live(world, plan.BUG_FIXED)
    note(f"it is fixed, and {len(course.broken)} processes are repaired")
    async with course.release(PRICES) as world:
        await course.repair(world)
        await course.live(world, plan.END)
        lives = {each.name: await _read(world.client, each.name) for each in customers}
        await _forget(world.client)
    provider = course.provider
    return Years(
        lives, list(provider.book.values()), provider.failures, len(course.broken), course.repaired
    )


async def _read(client: Client, name: str) -> Life:
    process = await client.get(NAMESPACE, name)
    return Life(name, [_fact_of(event) for event in process.history])


def _fact_of(event: Event) -> Fact:
    of: dict[str, Any] = event.payload
    nominal = datetime.fromisoformat(of["nominal"]) if "nominal" in of else None
    at = event.timestamp or plan.BEGIN
    return Fact(at, str(event.name), of.get("month", ""), of.get("cents", 0), nominal)


async def _forget(client: Client) -> None:
    """Remove all processes, those of a run that was stopped too."""
    while page := (await client.search(namespace=NAMESPACE, limit=500)).items:
        await asyncio.gather(*(client.remove(NAMESPACE, each.process_id) for each in page))
