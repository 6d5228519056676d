"""Figures told: medians of the rounds, each with its ratio to the median of another case."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from progressor.bench.measure import Figures
from progressor.bench.report import shown

_WIDTH = 200


@dataclass(frozen=True, slots=True)
class ToldPrices:
    """The rounds of all cases: `beside` names the case to which each is compared."""

    facts: Mapping[str, Any]
    beside: Mapping[str, str]
    rounds: dict[str, list[Figures]] = field(default_factory=dict)

    def median(self, case: str, figure: str) -> float | None:
        """Return the median of a figure; None if it was not measured."""
        found = [each[figure] for each in self.rounds.get(case, []) if figure in each]
        return statistics.median(found) if found else None

    def ratio(self, case: str, figure: str) -> float | None:
        """Return the ratio of a median to that of the case beside it; None for a case beside itself."""
        own, other = self.median(case, figure), self.median(self.beside[case], figure)
        return own / other if own is not None and other and case != self.beside[case] else None

    def as_json(self) -> dict[str, Any]:
        """Return everything, for a file."""
        return {
            "facts": dict(self.facts),
            "cases": [
                {
                    "name": case,
                    "beside": self.beside[case],
                    "median": {name: self.median(case, name) for name in rounds[-1]},
                    "ratio": {name: self.ratio(case, name) for name in rounds[-1]},
                    "rounds": rounds,
                }
                for case, rounds in self.rounds.items()
            ],
        }


def measured(
    told: ToldPrices,
    cases: Sequence[tuple[str, Callable[[], Coroutine[Any, Any, Figures]]]],
    *,
    rounds: int,
    run: Callable[[Coroutine[Any, Any, Figures]], Figures],
    console: Console,
) -> ToldPrices:
    """Measure all cases in turn, forth and back, each round beginning with another one."""
    for number in range(rounds):
        begin = number * len(cases) // rounds
        turn = [*cases[begin:], *cases[:begin]]
        for name, sample in turn if number % 2 else reversed(turn):
            figures = run(sample())
            told.rounds.setdefault(name, []).append(figures)
            rate, p99 = shown("rate", figures["rate"]), shown("p99_ms", figures["p99_ms"])
            console.print(f"{number + 1}/{rounds}  {name}: {rate}, p99 {p99}", style="dim", soft_wrap=True)
    return told


def show(told: ToldPrices, columns: Mapping[str, str], ratios: Mapping[str, str], console: Console) -> None:
    """Print a table of medians, with the ratios of some of them."""
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    table = Table(title=f"Medians of {told.facts['rounds']}", title_justify="left")
    table.add_column("case", no_wrap=True)
    for title in columns.values():
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("beside", no_wrap=True)
    for title in ratios.values():
        table.add_column(f"x its {title}", justify="right", no_wrap=True)
    for case in told.beside:
        beside = told.beside[case]
        compared = [told.ratio(case, figure) for figure in ratios]
        table.add_row(
            case,
            *(shown(figure, told.median(case, figure)) for figure in columns),
            "" if beside == case else beside,
            *("" if each is None else f"{each:.2f}" for each in compared),
        )
    console.print(table)
    facts = told.facts
    console.print(
        f"{facts['cores']} cores (load average {facts['load']} when it began), PostgreSQL "
        f"{facts['server_version']}, Python {facts['python']}; fsync {facts['fsync']}, "
        f"synchronous_commit {facts['synchronous_commit']}"
    )
