"""Who is measured beside the engine, at which of its cases, and what the comparison must show."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from progressor.bench.cases import OWN, BenchCase
from progressor.bench.samples import Results

PEERS = ("dbos", "procrastinate", "pgqueuer", "absurd", "oban")
BASELINES = ("naive", "ceiling", "pgbench")
_AT = {
    "dbos": ("chain-1", "chain-200", "start-1", "start-32", "start-200"),
    "procrastinate": ("chain-1", "chain-200", "start-1", "start-32", "start-200"),
    "pgqueuer": ("chain-1", "chain-200", "start-1", "start-32", "start-200"),
    "absurd": ("start-1", "start-32", "start-200"),
    "oban": ("chain-1", "chain-200", "start-1", "start-32", "start-200"),
    "naive": ("chain-1", "chain-200"),
    "ceiling": ("chain-200",),
    "pgbench": ("chain-200",),
}


def beside(
    cases: Iterable[BenchCase], others: Sequence[str], peers_python: Path | None
) -> Iterator[BenchCase]:
    """The engine's cases, each with the others' right after it, so that both meet the same machine."""
    for case in cases:
        yield case
        for name in others:
            if case.name in _AT[name]:
                yield from _others(case, name, peers_python)


def _others(case: BenchCase, name: str, peers_python: Path | None) -> Iterator[BenchCase]:
    if name in PEERS:
        if peers_python is not None:
            yield _as(case, name, "empty", (str(peers_python), "-m", f"benchmarks.peers.{name}_peer"))
        return
    command = (sys.executable, "-m", f"benchmarks.{name}")
    match name:
        case "pgbench":
            yield _as(case, name, "empty", command, clients=8)
        case "naive":
            yield _as(case, name, "fresh", command)
        case _:
            for connections in (1, 2):
                contestant = f"{name}, {connections} conn"
                yield _as(case, contestant, "fresh", command, connections=connections)


def _as(case: BenchCase, name: str, database: str, command: tuple[str, ...], **more: int) -> BenchCase:
    params = {**case.params, **more}
    return BenchCase(case.group, case.name, case.workload, params, database, name, command)


Where = tuple[str, str, str]


def _rate(name: str, contestant: str = OWN) -> Where:
    return name, "rate", contestant


def _p50(name: str, contestant: str = OWN) -> Where:
    return name, "p50_ms", contestant


def _p99(name: str) -> Where:
    return name, "p99_ms", OWN


def _us(name: str) -> Where:
    return name, "us", OWN


# One figure by another: what it says, the bound, and the two sides.
_AT_LEAST: tuple[tuple[str, float, Where, Where], ...] = (
    ("chain of 200 / pgbench -N", 2, _rate("chain-200"), _rate("chain-200", "pgbench")),
    ("chain of 200 / DBOS", 25, _rate("chain-200"), _rate("chain-200", "dbos")),
    ("chain of 200 / PgQueuer", 5, _rate("chain-200"), _rate("chain-200", "pgqueuer")),
    ("chain of 200 / raw ceiling", 0.4, _rate("chain-200"), _rate("chain-200", "ceiling, 1 conn")),
    ("chain of 1 / DBOS", 2, _rate("chain-1"), _rate("chain-1", "dbos")),
    ("chain of 1 / naive form", 1, _rate("chain-1"), _rate("chain-1", "naive")),
    ("starts, 32 clients / DBOS", 12, _rate("start-32"), _rate("start-32", "dbos")),
    ("starts, 32 clients / PgQueuer", 2.5, _rate("start-32"), _rate("start-32", "pgqueuer")),
    ("calls, 32 clients / starts of DBOS", 12, _rate("call-32"), _rate("start-32", "dbos")),
    ("calls, 32 clients / starts of PgQueuer", 2.5, _rate("call-32"), _rate("start-32", "pgqueuer")),
)
_AT_MOST: tuple[tuple[str, float, Where, Where], ...] = (
    *(
        (f"{name}, 1 client, p50 / start of {peer}", 1, _p50(f"{name}-1"), _p50("start-1", peer))
        for name in ("start", "call")
        for peer in PEERS
    ),
    ("call from another process, p50 / from the worker's", 2.5, _p50("call-1-elsewhere"), _p50("call-1")),
    (
        "claim beside a million waiting timers / beside none",
        1.5,
        _p50("timers-claim-waiting"),
        _p50("timers-claim"),
    ),
    (
        "calls beside a handler of 50 ms, p99 / the ordinary way",
        2,
        _p99("call-32-slow"),
        _p99("call-32-slow-ordinary"),
    ),
    (
        "CPU of a claim beside a million requests in full groups / beside none",
        1.2,
        ("groups-1", "server_cpu_us", OWN),
        ("groups-0", "server_cpu_us", OWN),
    ),
    ("step at 30,000 events / at 10", 1.2, _us("age-30000"), _us("age-10")),
    ("step with tables of 5,000,000 rows / empty ones", 1.3, _us("age-tables"), _us("age-tables-empty")),
)
# One figure by itself.
_FIGURE_AT_LEAST: tuple[tuple[str, float, str, str], ...] = (
    ("timers drained a second", 5000, "timers-drain", "rate"),
)
_FIGURE_AT_MOST: tuple[tuple[str, float, str, str], ...] = (
    ("lateness p99 of timers set by the worker, ms", 50, "timers-late-worker", "p99_ms"),
    ("lateness p99 of timers set by others, ms", 50, "timers-late-others", "p99_ms"),
    ("round trips of a call", 5, "distance-call", "round_trips"),
    ("round trips that a call waits for", 5, "distance-call", "waited_round_trips"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """One ratio (or one figure) that the run must show."""

    says: str
    value: float | None
    limit: float
    at_least: bool

    @property
    def met(self) -> bool | None:
        """None: not measured."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def bound(self) -> str:
        """The limit with its sign."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


def ratio(results: Results, above: Where, below: Where) -> float | None:
    """The ratio of two figures, each named by case, figure and contestant; None if no round has both.

    It is the median of the ratios of each round, because both sides of a round met the same machine in
    the same state.
    """
    sides = [
        [each.get(figure) for each in results.samples.get(f"{name} {contestant}", [])]
        for name, figure, contestant in (above, below)
    ]
    pairs = [a / b for a, b in zip(*sides, strict=False) if a is not None and b]
    return statistics.median(pairs) if pairs else None


def targets(results: Results) -> list[Target]:
    """All of them, with what was measured."""
    return [
        Target(says, ratio(results, above, below), limit, at_least)
        for ratios, at_least in ((_AT_LEAST, True), (_AT_MOST, False))
        for says, limit, above, below in ratios
    ] + [
        Target(says, results.median(f"{name} {OWN}").get(figure), limit, at_least)
        for figures, at_least in ((_FIGURE_AT_LEAST, True), (_FIGURE_AT_MOST, False))
        for says, limit, name, figure in figures
    ]
