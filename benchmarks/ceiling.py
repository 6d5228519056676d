"""The raw ceiling: the row changes of 200 steps as one statement, in a loop on one connection, no engine.

The same tables, indexes and settings of the session as the engine's. What is left out is everything that
makes an engine of it: handlers, decisions, locks, fences, mailboxes, results per item, other workers. Two
connections take turns, as the engine's two flights do: with one, PostgreSQL waits for Python and Python for
the disk; the better of the two is the ceiling, and `connections` says how many were used.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from benchmarks.peers import common
from progressor.bench.measure import Figures
from progressor.storage.connections import _SESSION as SESSION  # the same planner for both

_NAMESPACE = "bench.chain"

_START = """
WITH process AS (
    INSERT INTO processes (namespace, process_id, status, status_changed_at, created_at, aux_state)
    SELECT %(ns)s, id, 'running', now(), now(), '{"n":0}' FROM unnest(%(ids)s::text[]) AS id
),

task AS (
    INSERT INTO tasks (namespace, process_id, task_type, status, scheduled_time, running_time, worker_id)
    SELECT %(ns)s, id, 'timeout', 'running', now(), now(), 'raw' FROM unnest(%(ids)s::text[]) AS id
    RETURNING namespace, process_id, task_id
)

INSERT INTO running (namespace, process_id, task_id, task_type, worker_id, lease, running_time)
SELECT namespace, process_id, task_id, 'timeout', 'raw', 1, now() FROM task
"""
_STEP = """
WITH item AS MATERIALIZED (
    SELECT r.namespace, r.process_id, r.task_id, i.state, i.payload,
        p.last_event_id + 1 AS event_id, nextval('tasks_task_id_seq') AS next_id
    FROM unnest(%(ids)s::text[], %(states)s::bytea[], %(payloads)s::bytea[]) AS i (id, state, payload)
    JOIN running AS r ON r.namespace = %(ns)s AND r.process_id = i.id
    JOIN processes AS p ON p.namespace = r.namespace AND p.process_id = r.process_id
),

process AS (
    UPDATE processes AS p SET status = 'running', aux_state = i.state, last_event_id = i.event_id
    FROM item AS i WHERE p.namespace = i.namespace AND p.process_id = i.process_id
),

event AS (
    INSERT INTO events (namespace, process_id, event_id, task_id, timestamp, metadata, payload)
    SELECT namespace, process_id, event_id, task_id, now(), '{"name": "step"}', payload FROM item
),

finished AS (
    UPDATE tasks AS t SET status = 'finished', finished_time = now(), response = 'null'
    FROM item AS i
    WHERE t.namespace = i.namespace AND t.process_id = i.process_id AND t.task_id = i.task_id
),

following AS (
    INSERT INTO tasks (
        namespace, process_id, task_id, task_type, status, scheduled_time, running_time, worker_id, lease
    )
    SELECT namespace, process_id, next_id, 'timeout', 'running', now(), now(), 'raw', 1 FROM item
)

UPDATE running AS r SET task_id = i.next_id, lease = r.lease + 1, running_time = now()
FROM item AS i WHERE r.namespace = i.namespace AND r.process_id = i.process_id
"""


async def chain(
    dsn: str, *, processes: int, seconds: float, warmup: float, connections: int = 1
) -> Figures:
    """The processes in so many shares, each share's steps as one statement after another."""
    steps = common.Steps()
    ids = [f"p{number:04}" for number in range(processes)]
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(_START, {"ns": _NAMESPACE, "ids": ids})

    async def work(share: list[str]) -> None:
        names: dict[str, Any] = {
            "ns": _NAMESPACE,
            "ids": share,
            "states": [b'{"n":1}'] * len(share),
            "payloads": [common.PAYLOAD.encode()] * len(share),
        }
        async with await psycopg.AsyncConnection.connect(
            dsn, autocommit=True, prepare_threshold=0
        ) as connection:
            await connection.execute(SESSION)
            while steps.going:
                await connection.execute(_STEP, names)
                steps.count += len(share)

    working: list[asyncio.Task[None]] = []

    async def begin() -> None:
        size = -(-processes // connections)
        shares = [ids[place : place + size] for place in range(0, processes, size)]
        working.extend(asyncio.create_task(work(share)) for share in shares)

    figures = await common.chain(dsn, steps, begin, seconds=seconds, warmup=warmup)
    await asyncio.gather(*working)
    return figures


if __name__ == "__main__":
    common.main({"chain": chain})
