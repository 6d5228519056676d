"""memory: the resident memory of a worker, idle and with many steps at once."""

from __future__ import annotations

import asyncio
import gc

from progressor.bench import flows
from progressor.bench.databases import runner
from progressor.bench.flows import Names
from progressor.bench.measure import Figures, resident, until
from progressor.bench.rows import add_timers
from progressor.engine import Engine

_MEGABYTE = 1 << 20


async def memory(dsn: str, *, in_flight: int, settle: float = 1.0) -> Figures:
    """Measure resident memory in megabytes, and in kilobytes for each process in flight."""
    steps, door = flows.Steps(), asyncio.Event()
    async with Engine(dsn, [flows.held(steps, door, concurrency=in_flight)]) as engine:
        await asyncio.sleep(settle)
        gc.collect()
        idle = resident()
        await asyncio.to_thread(
            add_timers,
            runner(dsn),
            Names(flows.TIMERS, "held-"),
            in_flight,
            first=-60.0,
        )
        engine.pools[flows.TIMERS].ring("timers")
        await until(lambda: steps.count == in_flight)
        gc.collect()
        busy = resident()
        door.set()
    return {
        "count": float(in_flight),
        "idle_mb": idle / _MEGABYTE,
        "busy_mb": busy / _MEGABYTE,
        "each_kb": (busy - idle) / in_flight / 1024,
    }
