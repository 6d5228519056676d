"""age: chains that go on behind long histories."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from progressor.bench import flows
from progressor.bench.chain import check_counts, measure_steps
from progressor.bench.measure import Figures, Window
from progressor.engine import Engine
from progressor.handlers.process import Process


async def age(dsn: str, *, processes: int, history: int, seconds: float, warmup: float = 1.0) -> Figures:
    """Measure the steps per second of processes that each have so many events before."""
    steps = flows.Steps()
    namespace = flows.chain(steps, processes)

    @namespace.call
    async def go(process: Process[flows.Count], _args: dict[str, Any]) -> None:
        process.set_timer(after=flows.NOW)

    ids = [str(uuid.uuid4()) for _ in range(processes)]
    events = [{"name": "step", "pad": flows.PAD}] * history
    async with Engine(dsn, [namespace]) as engine:
        for each in ids:
            await engine.client.put(flows.CHAIN, each, state=flows.Count(), events=events)
        await asyncio.gather(*(engine.client.call(flows.CHAIN, each, "go", {}) for each in ids))
        figures = await measure_steps(dsn, engine, steps, Window(seconds, warmup))
    written = steps.count + history * processes
    check_counts(dsn, flows.CHAIN, ids, "timeout", steps=steps.count, events=written)
    return figures
