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
from progressor.storage.statements import STATEMENTS

_NAMESPACE = "bench.chain"

_START = """
WITH namespace AS (
    INSERT INTO progressor.namespaces (name, options) VALUES (%(ns)s, '{}') RETURNING namespace_no
),

process AS (
    INSERT INTO progressor.processes (
        namespace_no, process_id, status, status_changed_at, created_at, aux_state
    )
    SELECT namespace_no, id, 'running', now(), now(), '{"n":0}'
    FROM namespace, unnest(%(ids)s::text[]) AS id
    RETURNING process_no
),

task AS (
    INSERT INTO progressor.tasks (
        process_no, task_type, status, scheduled_time, running_time, worker_id, lease
    )
    SELECT process_no, 'timeout', 'running', now(), now(), 1, 1 FROM process
    RETURNING process_no, task_id
)

INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
SELECT process_no, task_id, 'timeout', 1, 1, now() FROM task
RETURNING process_no
"""
_STEP = """
WITH item AS MATERIALIZED (
    SELECT r.process_no, r.task_id, i.state, i.payload,
        p.last_event_id + 1 AS event_id, nextval('progressor.tasks_task_id_seq') AS next_id
    FROM unnest(%(numbers)s::bigint[], %(states)s::bytea[], %(payloads)s::bytea[])
        AS i (process_no, state, payload)
    JOIN progressor.running AS r ON r.process_no = i.process_no
    JOIN progressor.processes AS p ON p.process_no = r.process_no
),

process AS (
    UPDATE progressor.processes AS p
    SET status = 'running', aux_state = i.state, last_event_id = i.event_id
    FROM item AS i WHERE p.process_no = i.process_no
),

event AS (
    INSERT INTO progressor.events (process_no, event_id, task_id, timestamp, metadata, payload)
    SELECT process_no, event_id, task_id, now(), '{"name": "step"}', payload FROM item
),

finished AS (
    UPDATE progressor.tasks AS t SET status = 'finished', finished_time = now(), response = 'null'
    FROM item AS i
    WHERE t.process_no = i.process_no AND t.task_id = i.task_id
),

following AS (
    INSERT INTO progressor.tasks (
        process_no, task_id, task_type, status, scheduled_time, running_time, worker_id, lease
    )
    SELECT process_no, next_id, 'timeout', 'running', now(), now(), 1, 1 FROM item
)

UPDATE progressor.running AS r SET task_id = i.next_id, lease = r.lease + 1, running_time = now()
FROM item AS i WHERE r.process_no = i.process_no
"""


async def chain(
    dsn: str, *, processes: int, seconds: float, warmup: float, connections: int = 1
) -> Figures:
    """The processes in so many shares, each share's steps as one statement after another."""
    steps = common.Steps()
    ids = [f"p{number:04}" for number in range(processes)]
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(_START, {"ns": _NAMESPACE, "ids": ids})
        numbers: list[int] = [number for (number,) in await cursor.fetchall()]

    async def work(share: list[int]) -> None:
        names: dict[str, Any] = {
            "numbers": share,
            "states": [b'{"n":1}'] * len(share),
            "payloads": [common.PAYLOAD.encode()] * len(share),
        }
        async with await psycopg.AsyncConnection.connect(
            dsn, autocommit=True, prepare_threshold=0
        ) as connection:
            # The same planner for both.
            await connection.execute(STATEMENTS["planner"], {"is_local": False})
            while steps.going:
                await connection.execute(_STEP, names)
                steps.count += len(share)

    working: list[asyncio.Task[None]] = []

    async def begin() -> None:
        size = -(-processes // connections)
        shares = [numbers[place : place + size] for place in range(0, processes, size)]
        working.extend(asyncio.create_task(work(share)) for share in shares)

    figures = await common.chain(dsn, steps, begin, seconds=seconds, warmup=warmup)
    await asyncio.gather(*working)
    return figures


if __name__ == "__main__":
    common.main({"chain": chain})
