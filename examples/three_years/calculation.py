"""The calculation: what must become of each customer, by a plain loop over the months.

Rule: it shares the plan with the handlers, and no line of code: no engine, no calendar rule, no timer.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from . import plan
from .plan import BERLIN, Customer

WAITS = (5, 14, 14)  # days of dunning
_DAY, _HOUR, _MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Fact:
    """A thing that happened to a customer; of an invoice also its month, its cents and its nominal time."""

    at: datetime
    name: str
    month: str = ""
    cents: int = 0
    nominal: datetime | None = None


@dataclass(slots=True)
class Life:
    """All that happened to a customer, in its order; `failures` are tries that got no answer."""

    name: str
    facts: list[Fact] = field(default_factory=list)
    failures: int = 0
    breaks: int = 0


def life_of(customer: Customer) -> Life:
    """Return what must become of a customer until the end of the plan."""
    return _Calculation(customer).run()


class _Calculation:
    """The years of one customer: from invoice to invoice, with the dunning between them."""

    def __init__(self, customer: Customer) -> None:
        self._customer = customer
        self._life = Life(customer.name)
        self._since = customer.starts + customer.trial_days * _DAY
        self._end = customer.cancels or plan.END
        self._unpaid: list[tuple[str, int]] = []
        self._tries: dict[str, int] = {}
        self._reminders = 0
        self._dunning: datetime | None = None

    def run(self) -> Life:
        customer = self._customer
        self._note(customer.starts, "subscribed")
        if customer.trial_days and self._since < self._end:
            self._note(self._since, "trial ended")
        for due in _last_days():
            if due > self._since:
                self._dun_until(due, _run_at(customer, due)[0])
                self._invoice(due)
        self._dun_until(self._end, self._end)
        if self._end == customer.cancels:
            self._note(self._end, "cancelled")
        return self._life

    def _invoice(self, due: datetime) -> None:
        run, failures = _run_at(self._customer, due)
        if run > self._end:
            return
        self._life.failures += failures
        self._life.breaks += run == plan.BUG_FIXED
        wall = due.astimezone(BERLIN)
        month, cents = f"{wall.year}-{wall.month:02}", plan.PRICES[self._customer.plan]
        since = self._since.astimezone(BERLIN)
        if month == f"{since.year}-{since.month:02}":
            cents = cents * (wall.day - since.day + 1) // wall.day
        self._note(run, "invoiced", month, cents, due)
        self._try(run, month, cents)
        if self._unpaid and self._dunning is None:
            self._remind(run)

    def _dun_until(self, due: datetime, run: datetime) -> None:
        """Do the dunning that comes before an invoice, by when it is done and then by when it was due."""
        while self._dunning is not None:
            at, failures = _run_at(self._customer, self._dunning)
            if (at, self._dunning) >= (run, due) or at > self._end:
                return
            self._life.failures += failures
            self._dun(at)

    def _dun(self, at: datetime) -> None:
        unpaid, self._unpaid, self._dunning = self._unpaid, [], None
        for month, cents in unpaid:
            self._try(at, month, cents)
        if not self._unpaid:
            self._reminders = 0
        elif self._reminders < len(WAITS):
            self._remind(at)
        else:
            self._note(at, "ended unpaid")
            self._end = at

    def _try(self, at: datetime, month: str, cents: int) -> None:
        tries = self._tries[month] = self._tries.get(month, 0) + 1
        if tries > self._customer.declines.get(month, 0):
            self._note(at, "paid", month, cents)
        else:
            self._unpaid.append((month, cents))
            self._note(at, "declined", month, cents)

    def _remind(self, at: datetime) -> None:
        self._dunning = at + WAITS[self._reminders] * _DAY
        self._reminders += 1
        self._note(at, "reminded")

    def _note(
        self, at: datetime, name: str, month: str = "", cents: int = 0, nominal: datetime | None = None
    ) -> None:
        self._life.facts.append(Fact(at, name, month, cents, nominal))


def _last_days() -> Iterator[datetime]:
    """Yield nine o'clock in Berlin on the last day of each month, in UTC."""
    for year in range(2023, 2026):
        for month in range(1, 13):
            last = monthrange(year, month)[1]
            yield datetime(year, month, last, 9, tzinfo=BERLIN).astimezone(UTC)


def _run_at(customer: Customer, due: datetime) -> tuple[datetime, int]:
    """Return when a charge that is due then gets its answer, and how many tries get none."""
    broke = plan.berlin(2024, 8, 31, 9)  # the invoice for which the release lacks a price
    if customer.plan == plan.FORGOTTEN and broke <= due < plan.BUG_FIXED:
        return plan.BUG_FIXED, 0
    run, wait, failures = due, _MINUTE, 0
    while plan.OUTAGE_BEGINS <= run < plan.OUTAGE_ENDS:
        run, wait, failures = run + wait, min(2 * wait, _HOUR), failures + 1
    return run, failures
