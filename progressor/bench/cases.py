"""The cases of `progressor bench`: every workload at every size, and the seconds that it takes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from progressor.bench import chain, requests, timers
from progressor.bench.measure import Figures
from progressor.bench.rows import Sizes

OWN = "progressor"

Workload = Callable[..., Coroutine[Any, Any, Figures]]

WORKLOADS: Mapping[str, Workload] = {
    "chain": chain.chain,
    "start": requests.start,
    "call": requests.call,
    "slow": requests.slow,
    "drain": timers.drain,
    "late": timers.late,
    "claim": timers.claim,
}
"""The functions that measure, by the names that a child process gets on stdin."""

GROUPS: Mapping[str, str] = {
    "chain": "N processes, each a sequence of steps without delay: one 64-byte event and a new state each",
    "start": "C clients start trivial processes and wait for the answer",
    "call": "C clients call existing processes and wait; one event a call; also beside a slow handler",
    "timers": "many due at once; some that fall due beside many that wait; what a claim costs",
}
"""The groups of cases that a user can choose, with their descriptions."""


@dataclass(frozen=True, slots=True)
class BenchCase:
    """One case to measure: a contestant at a workload of one size."""

    group: str
    name: str
    workload: str
    params: Mapping[str, Any] = field(default_factory=dict)
    database: str = "fresh"
    contestant: str = OWN
    command: tuple[str, ...] = ()
    """The command to run instead of the engine's own child, with the same line on stdin."""

    @property
    def key(self) -> str:
        return f"{self.name} {self.contestant}"


def own_cases(sizes: Sizes, *, seconds: float) -> Iterator[BenchCase]:
    """Yield the cases of the workloads of this package."""
    timed: dict[str, Any] = {"seconds": seconds, "warmup": min(1.0, seconds)}
    for n in (1, 50, 200, 1000):
        yield BenchCase("chain", f"chain-{n}", "chain", {"processes": n, **timed})
    for n in (1, 32, 200):
        yield BenchCase("start", f"start-{n}", "start", {"clients": n, **timed})
    for n in (1, 32, 200):
        yield BenchCase("call", f"call-{n}", "call", {"clients": n, **timed})
    for n in (1, 32):
        yield BenchCase(
            "call", f"call-{n}-elsewhere", "call", {"clients": n, "where": "elsewhere", **timed}
        )
    yield BenchCase("call", "call-32-one-process", "call", {"clients": 32, "processes": 1, **timed})
    for how, fuse in (("", "learned"), ("-ordinary", "never")):
        params = {"clients": 32, "slow_ms": 50, "fuse": fuse, **timed}
        yield BenchCase("call", f"call-32-slow{how}", "slow", params)
    yield BenchCase("timers", "timers-drain", "drain", {"due": sizes.due})
    for by in ("worker", "others"):
        params = {"falling": sizes.falling, "seconds": max(2.0, 2 * seconds), "by": by}
        yield BenchCase("timers", f"timers-late-{by}", "late", params, "waiting")
    claims = {"claims": max(10, sizes.falling // 5)}
    yield BenchCase("timers", "timers-claim", "claim", claims)
    yield BenchCase("timers", "timers-claim-waiting", "claim", claims, "waiting")
