"""The file: one line a purchase. Nothing in here knows of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path

SAMPLE = Path(__file__).with_name("cdnow_sample.txt")


@dataclass(frozen=True, slots=True)
class Purchase:
    """A line of the file. `number` counts a customer's purchases from 1."""

    line: int
    customer: int
    number: int
    day: date
    cds: int
    cents: int


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer with all purchases, in their order."""

    number: int
    purchases: tuple[Purchase, ...]


def read_customers(path: Path = SAMPLE, *, most: int | None = None) -> list[Customer]:
    """The customers of the file, by number; only the first `most` of them if given."""
    found = groupby(_read(path), key=lambda purchase: purchase.customer)
    return [Customer(number, tuple(purchases)) for number, purchases in found][:most]


def _read(path: Path) -> Iterator[Purchase]:
    """The lines, which stand by customer and then by date."""
    customer, number = 0, 0
    for line, text in enumerate(path.read_text(encoding="ascii").splitlines(), start=1):
        _, in_sample, day, cds, dollars = text.split()
        number = number + 1 if int(in_sample) == customer else 1
        customer = int(in_sample)
        bought_on = datetime.strptime(f"{day}+0000", "%Y%m%d%z").date()
        yield Purchase(line, customer, number, bought_on, int(cds), int(Decimal(dollars) * 100))
