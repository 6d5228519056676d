"""chain: processes that go on from step to step without a pause."""

from __future__ import annotations

import asyncio
import uuid

from progressor.bench import flows
from progressor.bench.databases import run_sql
from progressor.bench.measure import Figures, Meter, Window, until
from progressor.engine import Engine

_COUNTS = """
WITH process AS MATERIALIZED (
    SELECT p.process_no, p.last_event_id
    FROM progressor.processes AS p JOIN progressor.namespaces AS n USING (namespace_no)
    WHERE n.name = %(namespace)s AND (%(ids)s::text[] IS NULL OR p.process_id = ANY(%(ids)s))
)

SELECT
    (SELECT coalesce(sum(last_event_id), 0) FROM process)::bigint AS numbered,
    (SELECT count(*) FROM progressor.events JOIN process USING (process_no)) AS events,
    (
        SELECT count(*) FROM progressor.tasks AS t JOIN process USING (process_no)
        WHERE t.task_type = %(task_type)s AND t.status = 'finished'
    ) AS finished
"""


class Inconsistent(Exception):
    """The tables do not hold the steps and events that were counted: the figures are worthless."""


def check_counts(
    dsn: str, namespace: str, ids: list[str] | None, task_type: str, *, steps: int, events: int
) -> None:
    """Check that so many finished tasks and events, numbered without a gap, stand in the tables.

    They are counted for these processes, or for all of the namespace (None). Raises Inconsistent.
    """
    (found,) = run_sql(dsn, _COUNTS, namespace=namespace, ids=ids, task_type=task_type)
    if found != {"numbered": events, "events": events, "finished": steps}:
        raise Inconsistent(f"{steps} steps with {events} events were expected, {found} found")


async def chain(dsn: str, *, processes: int, seconds: float, warmup: float = 1.0) -> Figures:
    """Measure the steps per second of so many processes."""
    # Random ids, so that the processes lie among the rows of others.
    ids = [str(uuid.uuid4()) for _ in range(processes)]
    return await chain_of(dsn, flows.CHAIN, ids, Window(seconds, warmup))


async def chain_of(dsn: str, name: str, ids: list[str], window: Window) -> Figures:
    """Measure the steps per second of these processes of the namespace."""
    steps = flows.Steps()
    async with Engine(dsn, [flows.chain(steps, len(ids), name=name)]) as engine:
        await asyncio.gather(*(engine.client.start(name, each, {}) for each in ids))
        figures = await measure_steps(dsn, engine, steps, window)
    check_counts(dsn, name, ids, "timeout", steps=steps.count, events=steps.count)
    return figures


async def measure_steps(dsn: str, engine: Engine, steps: flows.Steps, window: Window) -> Figures:
    """Measure the chains that go on in the engine, and let them end."""
    await window.warm_up(lambda: steps.count)
    async with Meter(dsn) as meter:
        before = steps.count
        await window.last(lambda: steps.count)
        counted = steps.count - before
    steps.going = False
    await until(lambda: not engine.busy)
    return meter.per(counted)
