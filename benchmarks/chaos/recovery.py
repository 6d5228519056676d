"""How long it took after each fault until work went on, and until all that was under way was done."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks.chaos.faults import Fault

_MAILBOX = ("init", "call", "notify", "repair")


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from the faults of a kind to the next step that ended, and to the last that was under way."""

    kind: str
    count: int
    next_p50: float
    next_max: float
    all_p50: float
    all_max: float


def recoveries(
    faults: Sequence[Fault], tasks: Sequence[tuple[str, datetime, datetime | None]]
) -> list[Recovery]:
    """By kind of fault. Requests that were accepted before a fault and ended after it were under way."""
    ends = sorted(finished for _, _, finished in tasks if finished is not None)
    requests = sorted(
        (asked, finished) for kind, asked, finished in tasks if kind in _MAILBOX and finished is not None
    )
    accepted = [asked for asked, _ in requests]
    found: dict[str, list[tuple[float, float]]] = {}
    for fault in faults:
        place = bisect_right(ends, fault.at)
        following = (ends[place] - fault.at).total_seconds() if place < len(ends) else float("inf")
        under_way = [ended for _, ended in requests[: bisect_left(accepted, fault.at)] if ended > fault.at]
        whole = (max(under_way) - fault.at).total_seconds() if under_way else following
        found.setdefault(fault.kind, []).append((following, whole))
    return [
        Recovery(
            kind,
            len(times),
            statistics.median(time for time, _ in times),
            max(time for time, _ in times),
            statistics.median(time for _, time in times),
            max(time for _, time in times),
        )
        for kind, times in sorted(found.items())
    ]
