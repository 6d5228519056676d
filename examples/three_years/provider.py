"""The payment provider: what is asked twice under one key is done once. It has a bad day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .plan import Customer


class Declined(Exception):
    """The bank says no."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge as the provider has booked it; the money moved if it was `paid`."""

    customer: str
    month: str
    cents: int
    paid: bool


class Provider:
    """The provider, with a book of all charges by their keys."""

    def __init__(self, customers: Iterable[Customer]) -> None:
        self.book: dict[str, Charge] = {}
        self.is_out = False
        self.failures = 0
        self._declined: Counter[tuple[str, str]] = Counter()
        self._customers = {customer.name: customer for customer in customers}

    async def charge(self, key: str, customer: str, month: str, cents: int) -> None:
        """Take money; Declined if the bank says no, ConnectionError without an answer."""
        known = self._customers[customer]
        if not self.is_out or known.loses_answer:
            self._do_once(key, known, month, cents)
        if self.is_out:
            self.failures += 1
            raise ConnectionError("the provider does not answer")
        if not self.book[key].paid:
            raise Declined(customer)

    def _do_once(self, key: str, customer: Customer, month: str, cents: int) -> None:
        done = self.book.get(key)
        if done is None:
            invoice = customer.name, month
            paid = self._declined[invoice] >= customer.declines.get(month, 0)
            self._declined[invoice] += not paid
            self.book[key] = Charge(customer.name, month, cents, paid)
        elif (done.customer, done.month, done.cents) != (customer.name, month, cents):
            raise ValueError(f"the key {key} was used for another charge: {done}")
