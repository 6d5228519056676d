"""distance: start and call of a worker that is farther away from PostgreSQL."""

from __future__ import annotations

import secrets
from types import TracebackType
from typing import Literal, Self

from benchmarks.workloads.proxy import Line, delayed
from progressor.bench import flows, requests
from progressor.bench.measure import Figures, Meter, Window


class _TurnsMeter(Meter):
    """A meter that counts the round trips of the proxy too."""

    def __init__(self, line: Line) -> None:
        super().__init__(line.dsn)
        self._line = line
        self._turns = 0

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._turns = await self._line.turns()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._turns = await self._line.turns() - self._turns
        await super().__aexit__(kind, error, trace)

    def per(self, count: int) -> Figures:
        return super().per(count) | ({"round_trips": self._turns / count} if count else {})


async def distance(
    dsn: str, *, what: Literal["start", "call"], round_trip_ms: float, seconds: float, warmup: float = 1.0
) -> Figures:
    """Measure one client of a worker whose round trips to PostgreSQL take so much longer.

    `round_trips` counts the round trips of a request on all connections; `waited_round_trips` is the growth
    of p50 by the delay, in round trips.
    """
    window = Window(seconds, warmup)
    near = await _measure(what, Meter(dsn), dsn, window)
    async with delayed(dsn, round_trip_ms / 2e3) as line:
        far = await _measure(what, _TurnsMeter(line), line.dsn, window)
    waited = (far["p50_ms"] - near["p50_ms"]) / line.measured_ms
    return far | {
        "near_p50_ms": near["p50_ms"],
        "added_ms": line.measured_ms,
        "waited_round_trips": waited,
    }


async def _measure(what: Literal["start", "call"], meter: Meter, dsn: str, window: Window) -> Figures:
    names = flows.Names(flows.ENTITY, f"{secrets.token_hex(4)}-")
    clients = requests.starting(dsn, 1, names) if what == "start" else requests.calling(dsn, 1)
    async with clients as loop:
        return await loop.run(meter, window)
