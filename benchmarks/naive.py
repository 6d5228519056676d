"""The naive form: the documented SQL of the original, per step one transaction, a round trip a statement.

begin; the process for update; update it; insert the event; finish the task; insert the next one; move the
running row; commit. On the engine's own tables and indexes, by psycopg's asynchronous connections, with
prepared statements. What is left out: mailbox, blocked timers, replies, claims, fences. In its favour.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from benchmarks.peers import common
from progressor.bench.measure import Figures

_NAMESPACE = "bench.chain"
_STATE = b'{"n":1}'

_START = """
WITH process AS (
    INSERT INTO processes (namespace, process_id, status, status_changed_at, created_at, aux_state)
    VALUES (%(ns)s, %(id)s, 'running', now(), now(), %(state)s)
),

task AS (
    INSERT INTO tasks (namespace, process_id, task_type, status, scheduled_time, running_time, worker_id)
    VALUES (%(ns)s, %(id)s, 'timeout', 'running', now(), now(), 'naive')
    RETURNING namespace, process_id, task_id
)

INSERT INTO running (namespace, process_id, task_id, task_type, worker_id, lease, running_time)
SELECT namespace, process_id, task_id, 'timeout', 'naive', 1, now() FROM task
"""
_LOCK = """
SELECT status, aux_state, last_event_id FROM processes
WHERE namespace = %(ns)s AND process_id = %(id)s FOR UPDATE
"""
_PROCESS = """
UPDATE processes SET status = 'running', aux_state = %(state)s, last_event_id = %(event)s
WHERE namespace = %(ns)s AND process_id = %(id)s
"""
_EVENT = """
INSERT INTO events (namespace, process_id, event_id, task_id, timestamp, payload)
VALUES (%(ns)s, %(id)s, %(event)s, %(task)s, now(), %(payload)s)
"""
_FINISH = """
UPDATE tasks SET status = 'finished', finished_time = now(), response = 'null'
WHERE namespace = %(ns)s AND process_id = %(id)s AND task_id = %(task)s
"""
_NEXT = """
INSERT INTO tasks (namespace, process_id, task_type, status, scheduled_time, running_time, worker_id)
VALUES (%(ns)s, %(id)s, 'timeout', 'running', now(), now(), 'naive') RETURNING task_id
"""
_MOVE = """
UPDATE running SET task_id = %(next)s, running_time = now()
WHERE namespace = %(ns)s AND process_id = %(id)s AND task_id = %(task)s
"""


class _Chain:
    """One process, step by step."""

    def __init__(self, process_id: str) -> None:
        self.names: dict[str, Any] = {
            "ns": _NAMESPACE,
            "id": process_id,
            "state": _STATE,
            "payload": common.PAYLOAD.encode(),
        }

    async def begin(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute(_START, self.names)
        cursor = await connection.execute("SELECT max(task_id) FROM tasks")
        row = await cursor.fetchone()
        self.names["task"] = row[0] if row else None

    async def step(self, connection: psycopg.AsyncConnection[Any]) -> None:
        names = self.names
        async with connection.transaction():
            row = await (await connection.execute(_LOCK, names)).fetchone()
            if row is None:
                raise RuntimeError("the process is gone")
            names["event"] = row[2] + 1
            await connection.execute(_PROCESS, names)
            await connection.execute(_EVENT, names)
            await connection.execute(_FINISH, names)
            following = await (await connection.execute(_NEXT, names)).fetchone()
            if following is None:
                raise RuntimeError("the task is gone")
            names["next"] = following[0]
            await connection.execute(_MOVE, names)
        names["task"] = names["next"]


async def chain(
    dsn: str, *, processes: int, seconds: float, warmup: float, connections: int = 32
) -> Figures:
    """So many connections, each with its share of the processes in turn."""
    steps = common.Steps()
    chains = [_Chain(f"p{number}") for number in range(processes)]
    used = min(connections, processes)

    async def work(share: list[_Chain]) -> None:
        connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True, prepare_threshold=0)
        async with connection:
            while steps.going:
                for each in share:
                    await each.step(connection)
                    steps.count += 1

    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        for each in chains:
            await each.begin(connection)
    working: list[asyncio.Task[None]] = []

    async def begin() -> None:
        working.extend(asyncio.create_task(work(chains[place::used])) for place in range(used))

    figures = await common.chain(dsn, steps, begin, seconds=seconds, warmup=warmup)
    await asyncio.gather(*working)
    return figures


if __name__ == "__main__":
    common.main({"chain": chain})
