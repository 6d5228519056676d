"""chain and age: processes that go on from step to step without a pause."""

from __future__ import annotations

import asyncio
import secrets

from progressor.bench import flows
from progressor.bench.databases import run_sql
from progressor.bench.measure import Figures, Meter, until
from progressor.engine import Engine

_COUNTS = """
SELECT
    (SELECT coalesce(sum(last_event_id), 0) FROM processes AS p
     WHERE p.namespace = %(namespace)s AND p.process_id = ANY(%(ids)s))::bigint AS numbered,
    (SELECT count(*) FROM events AS e
     WHERE e.namespace = %(namespace)s AND e.process_id = ANY(%(ids)s)) AS events,
    (SELECT count(*) FROM tasks AS t
     WHERE t.namespace = %(namespace)s AND t.process_id = ANY(%(ids)s)
     AND t.task_type = %(task_type)s AND t.status = 'finished') AS finished
"""


class Inconsistent(Exception):
    """The tables do not hold what was counted: the figures are worth nothing."""


def check_counts(
    dsn: str, namespace: str, ids: list[str], task_type: str, *, steps: int, events: int
) -> None:
    """Each step counted has its finished task and its event, numbered without a gap."""
    (found,) = run_sql(dsn, _COUNTS, namespace=namespace, ids=ids, task_type=task_type)
    if found != {"numbered": events, "events": events, "finished": steps}:
        raise Inconsistent(f"{steps} steps with {events} events were expected, {found} found")


async def chain(
    dsn: str, *, processes: int, seconds: float, warmup: float = 1.0, history: int = 0
) -> Figures:
    """Steps per second of so many processes; with `history`, of processes that have so many events."""
    steps = flows.Steps()
    namespace = flows.chain(steps, concurrency=max(100, processes))
    # Random, so that they lie among the rows of others.
    ids = [secrets.token_hex(16) for _ in range(processes)]
    async with Engine(dsn, [namespace]) as engine:
        if history:
            await _put(engine, ids, history)
            await asyncio.gather(*(engine.client.call(flows.CHAIN, each, "go", {}) for each in ids))
        else:
            await asyncio.gather(*(engine.client.start(flows.CHAIN, each, {}) for each in ids))
        await asyncio.sleep(warmup)
        async with Meter(dsn) as meter:
            before = steps.count
            await asyncio.sleep(seconds)
            counted = steps.count - before
        steps.going = False
        await until(lambda: not engine.busy)
    events = steps.count + history * processes
    check_counts(dsn, flows.CHAIN, ids, "timeout", steps=steps.count, events=events)
    return meter.per(counted)


async def _put(engine: Engine, ids: list[str], history: int) -> None:
    events = [{"name": "step", "pad": flows.PAD}] * history
    for each in ids:
        await engine.client.put(flows.CHAIN, each, state=flows.Count(), events=events)
