"""chain and age: processes that go on from step to step without a pause."""

from __future__ import annotations

import asyncio
import secrets

from progressor.bench import flows
from progressor.bench.databases import run_sql, runner
from progressor.bench.flows import Names, named
from progressor.bench.measure import Figures, Meter, passed, until, warm
from progressor.bench.rows import add_stored
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


async def chain(
    dsn: str,
    *,
    processes: int,
    seconds: float,
    warmup: float = 1.0,
    count: int | None = None,
    history: int = 0,
    names: str | None = None,
    stored: int = 0,
) -> Figures:
    """Measure the steps per second of so many processes; with `history`, each has so many events before.

    With `names`, they have names of that style, beside `stored` other processes that wait.
    """
    steps = flows.Steps()
    # Random ids, so that the processes lie among the rows of others.
    chosen = named(names, Names(flows.CHAIN, secrets.token_hex(8), uuids=True))
    if names is not None:
        await asyncio.to_thread(add_stored, runner(dsn), chosen, stored)
    namespace = flows.chain(steps, concurrency=max(100, processes), name=chosen.namespace)
    ids = [chosen.process_id(stored + number) for number in range(1, processes + 1)]
    async with Engine(dsn, [namespace]) as engine:
        client = engine.client
        if history:
            await _put(engine, chosen.namespace, ids, history)
            await asyncio.gather(*(client.call(chosen.namespace, each, "go", {}) for each in ids))
        else:
            await asyncio.gather(*(client.start(chosen.namespace, each, {}) for each in ids))
        await passed(warmup, lambda: steps.count, warm(count))
        async with Meter(dsn) as meter:
            before = steps.count
            await passed(seconds, lambda: steps.count, count)
            counted = steps.count - before
        steps.going = False
        await until(lambda: not engine.busy)
    events = steps.count + history * processes
    check_counts(dsn, chosen.namespace, ids, "timeout", steps=steps.count, events=events)
    return meter.per(counted)


async def _put(engine: Engine, namespace: str, ids: list[str], history: int) -> None:
    events = [{"name": "step", "pad": flows.PAD}] * history
    for each in ids:
        await engine.client.put(namespace, each, state=flows.Count(), events=events)
