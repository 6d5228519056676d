"""The plan: who subscribes, whose card is declined how often, who cancels, and what goes wrong when.

Rule: a plan depends on its seed alone, and knows nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from zoneinfo import ZoneInfo

BERLIN = ZoneInfo("Europe/Berlin")


def berlin(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    """Return a time of Berlin's wall clock, in UTC."""
    return datetime(year, month, day, hour, minute, tzinfo=BERLIN).astimezone(UTC)


BEGIN, END = berlin(2023, 1, 1), berlin(2026, 1, 1)
# The provider is out for a whole day, on which all invoices are due.
OUTAGE_BEGINS, OUTAGE_ENDS = berlin(2024, 2, 29), berlin(2024, 3, 1)
# A release forgets a price for four days, among them a day of invoices.
BUG_DEPLOYED, BUG_FIXED = berlin(2024, 8, 30, 12), berlin(2024, 9, 3, 10)
FORGOTTEN = "classic"
# Cents a month, before any share of the first one.
PRICES: Mapping[str, int] = {"basic": 4_99, "classic": 12_99, "pro": 29_90, "team": 99_50}
NEVER = 99  # declines: more than anybody tries
LAST_SIGN_UP = date(2025, 6, 30)


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer, with what the bank and the customer will do.

    `declines` says how often the bank declines the invoice of a month ("2023-01") before it pays. Where
    `loses_answer`, the provider does what it was asked during the outage, and its answer is lost.
    """

    name: str
    plan: str
    starts: datetime
    trial_days: int
    declines: Mapping[str, int]
    cancels: datetime | None
    loses_answer: bool


def customers(count: int, seed: int) -> Sequence[Customer]:
    """Return so many customers, in the order in which they start."""
    random = Random(seed)
    drawn = [_customer(number, random) for number in range(1, count + 1)]
    return sorted(drawn, key=lambda customer: (customer.starts, customer.name))


def _customer(number: int, random: Random) -> Customer:
    day = BEGIN.astimezone(BERLIN).date() + timedelta(days=1)
    # Half of them are there after a quarter of a year, and meet all the troubles.
    span = 90 if number % 2 else (LAST_SIGN_UP - day).days
    day += timedelta(days=random.randrange(span))
    wall = datetime.combine(day, time(random.randrange(24), random.randrange(60)), BERLIN)
    # The fifteenth of a month is no day of any trouble.
    leaves = random.randrange(12 * day.year + day.month, 12 * 2032)
    return Customer(
        name=f"customer-{number:04}",
        plan=random.choice(list(PRICES)),
        starts=wall.astimezone(UTC),
        trial_days=random.choice((0, 14, 14, 30)),
        declines=dict(_declines(random)),
        cancels=berlin(leaves // 12, leaves % 12 + 1, 15, 12) if leaves < 12 * 2026 else None,
        loses_answer=random.random() < 0.3,
    )


def _declines(random: Random) -> Sequence[tuple[str, int]]:
    months = [f"{year}-{month:02}" for year in range(2023, 2026) for month in range(1, 13)]
    drawn = [(month, random.random()) for month in months]
    # One in two hundred is never paid, one in twelve on a later try.
    return [
        (month, NEVER if chance < 0.005 else random.randint(1, 3))
        for month, chance in drawn
        if chance < 0.005 + 1 / 12
    ]
