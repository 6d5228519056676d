"""The check: the histories and the provider's book against the calculation, to the cent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .calculation import Fact, Life
from .years import Years

_EVENTS = {
    "customers": "subscribed",
    "trials that ended": "trial ended",
    "invoices": "invoiced",
    "declined": "declined",
    "reminders": "reminded",
    "cancelled": "cancelled",
    "ended unpaid": "ended unpaid",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the comparison."""

    what: str
    engine: int
    calculation: int
    is_money: bool = False

    def shown(self) -> str:
        """Return it for people."""
        verdict = "" if self.engine == self.calculation else "  DIFFERS"
        engine, calculation = map(self._value, (self.engine, self.calculation))
        return f"{self.what:30}{engine:>14}{calculation:>14}{verdict}"

    def _value(self, value: int) -> str:
        return f"{value // 100:,}.{value % 100:02}" if self.is_money else f"{value:,}"


@dataclass(frozen=True, slots=True)
class Report:
    """The lines of the comparison, and every single difference."""

    lines: Sequence[Line]
    differences: Sequence[str]

    @property
    def agrees(self) -> bool:
        return not self.differences and all(line.engine == line.calculation for line in self.lines)


def compare(years: Years, expected: Sequence[Life]) -> Report:
    """Compare each customer's facts one by one, the charges that moved money, and the totals."""
    differences = [text for life in expected for text in _differences(years, life)]
    lost = years.lives.keys() - {life.name for life in expected}
    differences += [f"{name}: nobody knows of it" for name in sorted(lost)]
    found = list(years.lives.values())
    lines = [Line(what, _count(found, name), _count(expected, name)) for what, name in _EVENTS.items()]
    lines += [
        Line("tries without an answer", years.failures, sum(life.failures for life in expected)),
        Line("broken by the bug", years.broken, sum(life.breaks for life in expected)),
        Line("repaired", years.repaired, sum(life.breaks for life in expected)),
        Line("invoiced", _money(found, "invoiced"), _money(expected, "invoiced"), is_money=True),
        Line("paid", _money(found, "paid"), _money(expected, "paid"), is_money=True),
        Line(
            "moved by the provider",
            sum(charge.cents for charge in years.book if charge.paid),
            _money(expected, "paid"),
            is_money=True,
        ),
    ]
    return Report(lines, differences)


def _differences(years: Years, expected: Life) -> list[str]:
    name, life = expected.name, years.lives.get(expected.name)
    if life is None:
        return [f"{name}: lost"]
    nominal = Counter(fact.nominal for fact in life.facts if fact.nominal is not None)
    wanted = Counter(fact.nominal for fact in expected.facts if fact.nominal is not None)
    texts = [f"{name}: lost the nominal time {each}" for each in wanted - nominal]
    texts += [f"{name}: ran once too often for the nominal time {each}" for each in nominal - wanted]
    moved = Counter((each.month, each.cents) for each in years.book if each.customer == name and each.paid)
    due = Counter((fact.month, fact.cents) for fact in expected.facts if fact.name == "paid")
    texts += [f"{name}: charged {cents} cents of {month} too often" for month, cents in moved - due]
    texts += [f"{name}: never charged {cents} cents of {month}" for month, cents in due - moved]
    if life.facts != expected.facts:
        texts.append(f"{name}: {_first_difference(life.facts, expected.facts)}")
    return texts


def _first_difference(found: Sequence[Fact], expected: Sequence[Fact]) -> str:
    for one, other in zip(found, expected, strict=False):
        if one != other:
            return f"the engine has {one}, the calculation {other}"
    return f"the engine has {len(found)} events, the calculation {len(expected)}"


def _count(lives: Iterable[Life], name: str) -> int:
    return sum(fact.name == name for life in lives for fact in life.facts)


def _money(lives: Iterable[Life], name: str) -> int:
    return sum(fact.cents for life in lives for fact in life.facts if fact.name == name)
