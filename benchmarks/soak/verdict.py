"""Whether what should be flat is flat, after the warm-up.

Rule: the slope is the median of the slopes between all pairs of samples (Theil and Sen), so that one
checkpoint or a neighbour on the machine moves nothing. Growth is the slope times the time after the
warm-up; it may be a share of the median, or an absolute amount that no operator would see.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.soak.samples import Sample


@dataclass(frozen=True, slots=True)
class Bound:
    """What may grow by how much: a share of its median, or an amount."""

    series: str
    share: float
    amount: float


BOUNDS = (
    Bound("engine memory, MiB", 0.05, 4),
    Bound("client memory, MiB", 0.05, 4),
    # Opened on demand up to the pools' limits, and kept.
    Bound("connections", 0.5, 8),
    *(
        Bound(f"{table} {part}, MiB", 0.10, 0.5)
        for table in ("processes", "schedule", "running", "workers")
        for part in ("table", "indexes")
    ),
    *(Bound(f"{table} dead rows", 0.5, 1000) for table in ("processes", "schedule", "running", "tasks")),
    Bound("backlog", 0.5, 20),
    Bound("under way", 0.5, 20),
)
# They follow whatever else the machine does, so they are judged only if it is nothing.
LATENCIES = (
    Bound("call p50, ms", 0.25, 2),
    Bound("call p99, ms", 0.5, 20),
    Bound("start p50, ms", 0.25, 2),
    Bound("notify p50, ms", 0.25, 2),
)
# For the reader: they grow with what is kept (answers of removed processes, for a day).
SHOWN = (
    *(f"{table} {part}, MiB" for table in ("tasks", "events") for part in ("table", "indexes")),
    "machine load",
)
_MOST_SAMPLES = 240


@dataclass(frozen=True, slots=True)
class Line:
    """One series after the warm-up. `flat` None: it need not be."""

    series: str
    median: float
    first: float
    last: float
    growth: float
    allowed: float
    flat: bool | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def judge(samples: Sequence[Sample], *, warm_up: float, alone: bool) -> list[Line]:
    """Every series that has a bound, and those that are shown."""
    judged = [*BOUNDS, *LATENCIES] if alone else [*BOUNDS]
    shown = [*SHOWN] if alone else [*(bound.series for bound in LATENCIES), *SHOWN]
    bounds = [*judged, *(Bound(series, 0.0, math.inf) for series in shown)]
    lines = []
    for bound in bounds:
        points = [
            (each["seconds"], each[bound.series])
            for each in samples
            if each["seconds"] >= warm_up and bound.series in each
        ]
        if len(points) >= 4:
            lines.append(_line(bound, points, is_judged=bound in judged))
    return lines


def _line(bound: Bound, points: Sequence[tuple[float, float]], *, is_judged: bool) -> Line:
    values = [value for _, value in points]
    third = max(1, len(values) // 3)
    growth = _slope(points) * (points[-1][0] - points[0][0])
    median = statistics.median(values)
    allowed = max(bound.amount, bound.share * median)
    return Line(
        series=bound.series,
        median=median,
        first=statistics.median(values[:third]),
        last=statistics.median(values[-third:]),
        growth=growth,
        allowed=allowed,
        flat=growth <= allowed if is_judged else None,
    )


def _slope(points: Sequence[tuple[float, float]]) -> float:
    step = max(1, len(points) // _MOST_SAMPLES)
    thin = points[::step]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, earlier in enumerate(thin)
        for later in thin[place + 1 :]
    ]
    return statistics.median(slopes)
