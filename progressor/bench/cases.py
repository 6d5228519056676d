"""The cases of the benchmarks: every workload at every size, and the seconds that it takes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from progressor.bench import chain, mailbox, memory, requests, timers
from progressor.bench.databases import Kind
from progressor.bench.measure import Figures
from progressor.bench.rows import Sizes

OWN = "progressor"

WORKLOADS: Mapping[str, Callable[..., Coroutine[Any, Any, Figures]]] = {
    "chain": chain.chain,
    "start": requests.start,
    "call": requests.call,
    "slow": requests.slow,
    "among": requests.among,
    "distance": requests.distance,
    "drain": timers.drain,
    "late": timers.late,
    "claim": timers.claim,
    "beside": mailbox.beside,
    "emptied": mailbox.emptied,
    "crowd": mailbox.crowd,
    "memory": memory.memory,
}
"""The functions that measure, by the names that a child process gets on stdin."""

GROUPS: Mapping[str, str] = {
    "chain": "N processes, each a sequence of steps without delay: one 64-byte event and a new state each",
    "start": "C clients start trivial processes and wait for the answer",
    "call": "C clients call existing processes and wait; one event a call; also beside a slow handler",
    "timers": "many due at once; some that fall due beside many that wait; what a claim costs",
    "age": "the chain, with long histories and with big tables",
    "names": "call, timers, chain and start among many stored processes, with long and with short names",
    "mailbox": "calls beside a long mailbox, a mailbox worked off, and a crowd of requests at once",
    "distance": "start and call with 1 ms added to each round trip to PostgreSQL",
    "memory": "what a worker holds, idle and with many steps at once",
}
"""The groups of cases that a user can choose, with their descriptions."""


@dataclass(frozen=True, slots=True)
class BenchCase:
    """One case to measure: a contestant at a workload of one size."""

    group: str
    name: str
    workload: str
    params: Mapping[str, Any] = field(default_factory=dict)
    database: Kind = "fresh"
    contestant: str = OWN
    command: tuple[str, ...] = ()
    """The command to run instead of the engine's own child, with the same line on stdin."""

    @property
    def key(self) -> str:
        return f"{self.name} {self.contestant}"


def own_cases(sizes: Sizes, *, seconds: float, only: Iterable[str] = ()) -> Iterator[BenchCase]:
    """Yield the engine's own cases; `only` limits them to these groups and cases."""
    wanted = set(only)
    for case in _all(sizes, seconds):
        if not wanted or {case.group, case.name} & wanted:
            yield case


def _all(sizes: Sizes, seconds: float) -> Iterator[BenchCase]:
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
    # Three cases that differ only in the length of the histories.
    for events in sorted({10, sizes.history // 30, sizes.history}):
        yield BenchCase("age", f"age-{events}", "chain", {"processes": 8, "history": events, **timed})
    yield BenchCase("age", "age-tables", "chain", {"processes": 200, **timed}, "aged")
    yield BenchCase("age", "age-tables-empty", "chain", {"processes": 200, **timed})
    yield from _named(sizes, timed)
    yield from _mailboxes(sizes, timed)
    for what in ("start", "call"):
        params = {"what": what, "round_trip_ms": 1.0, **timed}
        yield BenchCase("distance", f"distance-{what}", "distance", params)
    yield BenchCase("memory", "memory", "memory", {"in_flight": sizes.in_flight})


def _named(sizes: Sizes, timed: Mapping[str, Any]) -> Iterator[BenchCase]:
    few = max(10, sizes.stored // 100)
    for style, stored, due in (("long", sizes.stored, sizes.stored), ("short", few, 4 * few)):
        base = {"names": style, "stored": stored, "count": sizes.window, **timed}
        yield BenchCase("names", f"names-{style}-call", "among", {"clients": 32, **base})
        drain = {"names": style, "due": due, "warmup": due // 10}
        yield BenchCase("names", f"names-{style}-drain", "drain", drain)
        yield BenchCase(
            "names", f"names-{style}-chain", "chain", {"processes": 200, **base, "count": 3 * sizes.window}
        )
        yield BenchCase("names", f"names-{style}-start", "start", {"clients": 32, **base})


def _mailboxes(sizes: Sizes, timed: Mapping[str, Any]) -> Iterator[BenchCase]:
    beside = {"waiting": sizes.mailbox // 2, "processes": 50, **timed}
    yield BenchCase("mailbox", "mailbox-beside", "beside", beside)
    for waiting in (sizes.mailbox // 100, sizes.mailbox):
        yield BenchCase("mailbox", f"mailbox-{waiting}", "emptied", {"waiting": waiting})
    yield BenchCase("mailbox", f"mailbox-crowd-{sizes.crowd}", "crowd", {"processes": sizes.crowd})
