"""The customers come in: every purchase in the order of its date, many customers at once.

Rule: what the shop answers is counted here, never assumed. What nobody planned becomes a problem, which
the check at the end shows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import accumulate, count
from typing import Any

from progressor import Client, HandlerFailed, ProcessHandle, ProgressorError, Rejected

from . import troubles
from .purchases import Customer, Purchase
from .shop import DAY, JAMMED_TILL, NAMESPACE, Buy, Fix, Refund, Total

# Half of the namespace's slots, so that timers find one too.
AT_ONCE = 50
OPEN_TILL = 1
SEARCH_INTERVAL = 0.05


@dataclass
class Progress:
    """How far the replay is; the view reads it at any time."""

    run: str
    expected: int
    day: date
    activity: str = "replaying"
    purchases: int = 0
    requests: int = 0
    customers: int = 0
    refusals: int = 0
    repairs: int = 0
    asked_twice: int = 0
    broken: set[int] = field(default_factory=set)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=6))
    problems: list[str] = field(default_factory=list)


class Calendar:
    """The days of the file as moments of this run."""

    def __init__(self, first: date, *, day: timedelta) -> None:
        self._first = first
        self._day = day
        self._began = asyncio.get_running_loop().time()

    async def reach(self, day: date) -> None:
        """Sleep until that day; not at all if it is over, because the shop was slow."""
        due = self._began + (self._day * (day - self._first).days).total_seconds()
        await asyncio.sleep(due - asyncio.get_running_loop().time())


class Replay:
    """One run of all customers, through the public API; their process ids begin with the run's name."""

    def __init__(
        self, client: Client, customers: Sequence[Customer], *, run: str, day: timedelta = DAY
    ) -> None:
        self._client = client
        self._customers = customers
        self._first = min(customer.purchases[0].day for customer in customers)
        self._day = day
        self._counters = asyncio.Semaphore(AT_ONCE)
        expected = sum(len(customer.purchases) for customer in customers)
        self.progress = Progress(run, expected, self._first)

    async def run(self) -> None:
        """Let every customer buy everything; returns when all have."""
        calendar = Calendar(self._first, day=self._day)
        async with asyncio.TaskGroup() as shop:
            for customer in self._customers:
                shop.create_task(self._live(customer, calendar))

    async def until_quiet(self, patience: timedelta = timedelta(seconds=60)) -> None:
        """Wait until the last timer of each customer has fired."""
        self.progress.activity = "waiting until everybody went quiet"
        loud = {"run": self.progress.run, "quiet": False}
        try:
            async with asyncio.timeout(patience.total_seconds()):
                while await self._some(loud):  # noqa: ASYNC110 - the database knows
                    await asyncio.sleep(SEARCH_INTERVAL)
        except TimeoutError:
            self.progress.problems.append(f"not everybody went quiet within {patience}")

    async def _some(self, metadata: dict[str, Any]) -> bool:
        return bool((await self._client.search(namespace=NAMESPACE, metadata=metadata, limit=1)).items)

    async def _live(self, customer: Customer, calendar: Calendar) -> None:
        process = self._client.process(NAMESPACE, process_id(self.progress.run, customer))
        totals = accumulate(map(_total_of, customer.purchases), _add)
        try:
            for purchase, total in zip(customer.purchases, totals, strict=True):
                await calendar.reach(purchase.day)
                async with self._counters:
                    await self._buy(process, customer, purchase, total)
                    await self._ask_for_too_much(process, purchase, total)
        except ProgressorError as error:
            self._problem(customer, f"{type(error).__name__}: {error}")

    async def _buy(
        self, process: ProcessHandle, customer: Customer, purchase: Purchase, total: Total
    ) -> None:
        """Ask until the purchase is made, repairing what breaks on purpose."""
        till = JAMMED_TILL if troubles.meets_jammed_till(purchase) else OPEN_TILL
        for attempt in count(1):
            try:
                answer = await self._ask(process, purchase, till=till, attempt=attempt)
                break
            except HandlerFailed as failure:
                await self._repair(process, customer, purchase, till=till, failure=failure)
                till = OPEN_TILL
        if answer != total:
            self._problem(customer, f"line {purchase.line} was answered with {answer}, not {total}")
        self.progress.purchases += 1
        self.progress.customers += purchase.number == 1
        self.progress.day = max(self.progress.day, purchase.day)

    async def _ask(self, process: ProcessHandle, purchase: Purchase, *, till: int, attempt: int) -> Total:
        """One attempt at a purchase, under a key of its own: asked again, it is not bought again.

        A first purchase keeps its key. The repair let its init run anew, and asking again gets that answer.
        """
        args = Buy(line=purchase.line, day=purchase.day, cds=purchase.cds, cents=purchase.cents, till=till)
        key = f"line-{purchase.line}-attempt-{1 if purchase.number == 1 else attempt}"
        metadata = {"run": self.progress.run, "quiet": False}

        async def ask() -> Any:
            if purchase.number == 1:
                return await process.start(args, idempotency_key=key, metadata=metadata)
            return await process.call("purchase", args, idempotency_key=key)

        answers = await self._gather(*(ask() for _ in range(1 + troubles.asks_twice(purchase))))
        if any(answer != answers[0] for answer in answers):
            self.progress.problems.append(f"line {purchase.line} was answered twice: {answers}")
        self.progress.asked_twice += len(answers) - 1
        return Total.model_validate(answers[0])

    async def _gather(self, *requests: Awaitable[Any]) -> list[Any]:
        """The answers to all of them, or the first error when all have ended."""
        answers = await asyncio.gather(*requests, return_exceptions=True)
        self.progress.requests += len(answers)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def _repair(
        self,
        process: ProcessHandle,
        customer: Customer,
        purchase: Purchase,
        *,
        till: int,
        failure: HandlerFailed,
    ) -> None:
        """Nothing is wrong with who met a jammed till; who is over the limit needs another one."""
        self.progress.broken.add(customer.number)
        self._note(purchase, f"broke: {failure.error}")
        if till == JAMMED_TILL:
            await process.simple_repair()
        elif troubles.is_over_limit(customer, purchase):
            await process.repair(Fix(limit=troubles.NO_LIMIT))
        else:
            raise failure
        self.progress.broken.discard(customer.number)
        self.progress.repairs += 1

    async def _ask_for_too_much(self, process: ProcessHandle, purchase: Purchase, total: Total) -> None:
        if troubles.asks_for_nothing(purchase):
            nothing = Buy(line=0, day=purchase.day, cds=0, cents=0)
            await self._be_refused(purchase, process.call("purchase", nothing))
        if troubles.asks_too_much_back(purchase):
            too_much = Refund(cents=total.cents + 1)
            await self._be_refused(purchase, process.call("refund", too_much))

    async def _be_refused(self, purchase: Purchase, request: Awaitable[Any]) -> None:
        self.progress.requests += 1
        try:
            answer = await request
        except Rejected as rejection:
            self.progress.refusals += 1
            self._note(purchase, f"was refused: {rejection.reason}")
        else:
            self.progress.problems.append(f"line {purchase.line}: not refused but answered with {answer}")

    def _note(self, purchase: Purchase, text: str) -> None:
        self.progress.recent.append(f"{purchase.day}  customer {purchase.customer:04} {text}")

    def _problem(self, customer: Customer, text: str) -> None:
        self.progress.problems.append(f"customer {customer.number:04}: {text}")


def process_id(run: str, customer: Customer) -> str:
    """The id of a customer's process in a run."""
    return f"{run}-{customer.number:04}"


def _total_of(purchase: Purchase) -> Total:
    return Total(purchases=1, cds=purchase.cds, cents=purchase.cents)


def _add(one: Total, other: Total) -> Total:
    return Total(
        purchases=one.purchases + other.purchases, cds=one.cds + other.cds, cents=one.cents + other.cents
    )
