"""timers: many due at once, a few that fall due beside a million that wait, and the cost of a claim."""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import UTC, datetime, timedelta
from typing import Literal

from progressor.bench import flows
from progressor.bench.chain import Inconsistent, check_counts
from progressor.bench.databases import run_sql, runner
from progressor.bench.flows import Names
from progressor.bench.measure import Figures, Meter, spread, until
from progressor.bench.rows import add_timers
from progressor.config import ConnectionOptions
from progressor.engine import Engine
from progressor.storage import SessionPool, Storage

# Seconds from the due time to the beginning of the step, and to the saving of its result.
_LATENESS = """
SELECT
    extract(epoch FROM t.running_time - t.scheduled_time)::float8 AS begun,
    extract(epoch FROM t.finished_time - t.scheduled_time)::float8 AS ended
FROM progressor.namespaces AS n
JOIN progressor.processes AS p USING (namespace_no)
JOIN progressor.tasks AS t USING (process_no)
WHERE
    n.name = %(namespace)s AND p.process_id >= %(prefix)s AND p.process_id < %(prefix)s || '~'
    AND t.task_type = 'timeout' AND t.status = 'finished'
ORDER BY ended
"""


async def _fired(steps: flows.Steps, count: int, engine: Engine) -> None:
    await until(lambda: steps.count == count and not engine.busy)


async def drain(dsn: str, *, due: int) -> Figures:
    """Measure timers that are all due when the worker starts, until the last one is saved."""
    names = Names(flows.TIMERS, f"due-{secrets.token_hex(4)}-")
    await asyncio.to_thread(add_timers, runner(dsn), names, due, first=-60.0)
    return await fire_due(dsn, names, due)


async def fire_due(dsn: str, names: Names, due: int, *, warmup: int = 0) -> Figures:
    """Measure a worker that fires these timers; the measurement begins when `warmup` of them have fired."""
    steps = flows.Steps()
    async with Engine(dsn, [flows.timers(steps, names.namespace)]) as engine:
        await until(lambda: steps.count >= warmup)
        async with Meter(dsn) as meter:
            # Steps that run are not saved yet: they count as still to be done.
            before = max(0, steps.count - engine.busy)
            await _fired(steps, due, engine)
    check_counts(dsn, names.namespace, None, "timeout", steps=due, events=due)
    return meter.per(due - before)


async def late(
    dsn: str, *, falling: int, seconds: float, warmup: float = 2.0, by: Literal["worker", "others"]
) -> Figures:
    """Measure how late steps begin and end whose timers fall due evenly over so many seconds.

    The timers are set `by` steps of this worker, or by others, as rows that only a scan can find.
    """
    prefix = f"late-{secrets.token_hex(4)}-"
    steps = flows.Steps()
    gap = seconds / falling
    async with Engine(dsn, [flows.timers(steps)]) as engine:
        if by == "worker":
            now = run_sql(dsn, "SELECT clock_timestamp() AS now")[0]["now"]
            first = now.astimezone(UTC) + timedelta(seconds=warmup)
            await asyncio.gather(
                *(
                    _start(engine, f"{prefix}{i}", first + timedelta(seconds=i * gap))
                    for i in range(falling)
                )
            )
        else:
            await asyncio.to_thread(
                add_timers, runner(dsn), Names(flows.TIMERS, prefix), falling, first=warmup, gap=gap
            )
        await _fired(steps, falling, engine)
    rows = run_sql(dsn, _LATENESS, namespace=flows.TIMERS, prefix=prefix)
    _check(len(rows), falling)
    begun = sorted(row["begun"] for row in rows)
    return {"count": float(len(rows))} | spread(begun) | spread([row["ended"] for row in rows], "ended_")


async def _start(engine: Engine, process_id: str, at: datetime) -> None:
    await engine.client.start(flows.TIMERS, process_id, {"at": at.isoformat()})


def _check(found: int, expected: int) -> None:
    if found != expected:
        raise Inconsistent(f"{expected} timers should have fired, {found} did")


async def claim(dsn: str, *, claims: int, limit: int = 50) -> Figures:
    """Measure claims of `limit` due timers each, and claims that find none."""
    prefix = f"claim-{secrets.token_hex(4)}-"
    await asyncio.to_thread(
        add_timers, runner(dsn), Names(flows.TIMERS, prefix), claims * limit, first=-60.0
    )
    connections = SessionPool(dsn, limit=2)
    storage = Storage(connections, patience=ConnectionOptions().patience)
    try:
        full = sorted([await _claim(storage, limit, expected=limit) for _ in range(claims)])
        empty = sorted([await _claim(storage, limit, expected=0) for _ in range(claims)])
    finally:
        await connections.close()
        run_sql(dsn, "DELETE FROM progressor.running")
    return {"count": float(claims)} | spread(full) | spread(empty, "empty_")


async def _claim(storage: Storage, limit: int, *, expected: int) -> float:
    began = time.perf_counter()
    found = await storage.search("timers", flows.TIMERS, limit, worker_id=1, lease=secrets.randbits(62))
    took = time.perf_counter() - began
    _check(len(found), expected)
    return took
