"""What goes wrong on purpose: told by the file alone, so that every run has the same troubles.

Rule: pure functions of a purchase; the replay causes what they say and the check counts it.
"""

from __future__ import annotations

from collections.abc import Iterable

from .purchases import Customer, Purchase
from .shop import Customer as State

FIRST_LIMIT = State().limit
NO_LIMIT = 1_000_000_00


def asks_for_nothing(purchase: Purchase) -> bool:
    """After this purchase the customer orders no CDs, and is refused."""
    return purchase.customer % 20 == 0 and purchase.number == 1


def asks_too_much_back(purchase: Purchase) -> bool:
    """After this purchase the customer wants more money back than was paid, and is refused."""
    return purchase.customer % 50 == 7 and purchase.number <= 2


def asks_twice(purchase: Purchase) -> bool:
    """The customer presses the button twice: the same request under the same key, at once."""
    return purchase.line % 25 == 0


def meets_jammed_till(purchase: Purchase) -> bool:
    """The purchase is tried at the jammed till first, which breaks the process: a simple repair."""
    return purchase.customer % 100 == 13 and purchase.number == 2


def is_over_limit(customer: Customer, purchase: Purchase) -> bool:
    """The customer's first purchase over the limit breaks the process: a repair that lifts the limit."""
    over = next((each for each in customer.purchases if each.cents > FIRST_LIMIT), None)
    return over is purchase


def count_refusals(customers: Iterable[Customer]) -> int:
    """How many requests must be refused."""
    purchases = [each for customer in customers for each in customer.purchases]
    return sum(map(asks_for_nothing, purchases)) + sum(map(asks_too_much_back, purchases))


def count_repairs(customers: Iterable[Customer]) -> int:
    """How often a process must break and be repaired."""
    return sum(
        is_over_limit(customer, purchase) + meets_jammed_till(purchase)
        for customer in customers
        for purchase in customer.purchases
    )
