"""The cases of these workloads, behind those of `progressor bench`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.workloads import age, distance, limits, mailbox, memory, names
from benchmarks.workloads.rows import Sizes
from progressor.bench import cases
from progressor.bench.cases import BenchCase, Workload

WORKLOADS: Mapping[str, Workload] = {
    "age": age.age,
    "chain": cases.WORKLOADS["chain"],
    "names-call": names.call,
    "names-chain": names.chain,
    "names-drain": names.drain,
    "names-start": names.start,
    "distance": distance.distance,
    "beside": mailbox.beside,
    "emptied": mailbox.emptied,
    "crowd": mailbox.crowd,
    "memory": memory.memory,
    "jitter": limits.jitter,
    "full-groups": limits.full_groups,
}

GROUPS: Mapping[str, str] = {
    **cases.GROUPS,
    "age": "the chain, with long histories and with big tables",
    "names": "call, timers, chain and start among many stored processes, with long and with short names",
    "mailbox": "calls beside a long mailbox, a mailbox worked off, and a crowd of requests at once",
    "distance": "start and call with 1 ms added to each round trip to PostgreSQL",
    "memory": "what a worker holds, idle and with many steps at once",
    "jitter": "recurring timers of one nominal time, spread over five minutes, at two rates",
    "groups": "claims beside requests that wait in full groups: in one, and in many",
}

_COMMAND = (sys.executable, "-m", "benchmarks.workloads")


def all_cases(sizes: Sizes, *, seconds: float) -> Iterator[BenchCase]:
    """Yield all cases of the engine."""
    yield from cases.own_cases(sizes, seconds=seconds)
    timed: dict[str, Any] = {"seconds": seconds, "warmup": min(1.0, seconds)}
    # Three cases that differ only in the length of the histories.
    for events in sorted({10, sizes.history // 30, sizes.history}):
        yield _case("age", f"age-{events}", "age", {"processes": 8, "history": events, **timed})
    yield _case("age", "age-tables", "chain", {"processes": 200, **timed}, "aged")
    yield _case("age", "age-tables-empty", "chain", {"processes": 200, **timed})
    yield from _named(sizes)
    yield from _mailboxes(sizes, timed)
    for what in ("start", "call"):
        params = {"what": what, "round_trip_ms": 1.0, **timed}
        yield _case("distance", f"distance-{what}", "distance", params)
    yield _case("memory", "memory", "memory", {"in_flight": sizes.in_flight})
    # Spread over five minutes: a million is 3,333 a second.
    for part in (1, 4):
        timers = {"timers": sizes.jittered // part, "seconds": sizes.jittered * 3e-4}
        yield _case("jitter", f"jitter-{sizes.jittered // part}", "jitter", timers)
    for held, groups in (
        (0, 1),
        (sizes.held, 1),
        (sizes.held, sizes.held // 1000),
        (sizes.held, sizes.held // 10),
    ):
        given = {"held": held, "groups": groups, "claims": 300}
        yield _case("groups", f"groups-{groups if held else 0}", "full-groups", given)


def _case(
    group: str, name: str, workload: str, params: Mapping[str, Any], database: str = "fresh"
) -> BenchCase:
    return BenchCase(group, name, workload, params, database, command=_COMMAND)


def _named(sizes: Sizes) -> Iterator[BenchCase]:
    few = max(10, sizes.stored // 100)
    for style, stored, due in (("long", sizes.stored, sizes.stored), ("short", few, 4 * few)):
        base = {"names": style, "stored": stored, "count": sizes.window}
        drain = {"names": style, "due": due, "warmup": due // 10}
        for what, params in (
            ("call", {"clients": 32, **base}),
            ("drain", drain),
            ("chain", {"processes": 200, **base, "count": 3 * sizes.window}),
            ("start", {"clients": 32, **base}),
        ):
            yield _case("names", f"names-{style}-{what}", f"names-{what}", params)


def _mailboxes(sizes: Sizes, timed: Mapping[str, Any]) -> Iterator[BenchCase]:
    beside = {"waiting": sizes.mailbox // 2, "processes": 50, **timed}
    yield _case("mailbox", "mailbox-beside", "beside", beside)
    for waiting in (sizes.mailbox // 100, sizes.mailbox):
        yield _case("mailbox", f"mailbox-{waiting}", "emptied", {"waiting": waiting})
    yield _case("mailbox", f"mailbox-crowd-{sizes.crowd}", "crowd", {"processes": sizes.crowd})
