"""memory: the resident memory of a worker, idle and with many steps at once."""

from __future__ import annotations

import asyncio
import gc
import os
from datetime import timedelta
from pathlib import Path

from progressor.bench import flows
from progressor.bench.databases import runner
from progressor.bench.flows import Count, Names
from progressor.bench.measure import Figures, until
from progressor.bench.rows import add_timers
from progressor.engine import Engine
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process

_MEGABYTE = 1 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")


async def memory(dsn: str, *, in_flight: int, settle: float = 1.0) -> Figures:
    """Measure resident memory in megabytes, and in kilobytes for each process in flight."""
    steps, door = flows.Steps(), asyncio.Event()
    async with Engine(dsn, [_held(steps, door, in_flight)]) as engine:
        await asyncio.sleep(settle)
        gc.collect()
        idle = _resident()
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
        busy = _resident()
        door.set()
    return {
        "count": float(in_flight),
        "idle_mb": idle / _MEGABYTE,
        "busy_mb": busy / _MEGABYTE,
        "each_kb": (busy - idle) / in_flight / 1024,
    }


def _held(steps: flows.Steps, door: asyncio.Event, concurrency: int) -> Namespace:
    """Return a namespace whose processes' timer runs until the door is opened."""
    namespace = Namespace(
        flows.TIMERS, state=Count, concurrency=concurrency, step_timeout=timedelta(hours=1)
    )

    @namespace.timeout
    async def hold(process: Process[Count]) -> None:
        steps.count += 1
        await door.wait()
        process.state.n += 1

    return namespace


def _resident() -> int:
    """Return the resident memory of this OS process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
