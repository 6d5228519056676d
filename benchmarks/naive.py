"""The naive form: the documented SQL of the original, per step one transaction, a round trip a statement.

begin; the process for update; update it; insert the event; finish the task; insert the next one; move the
running row; commit. A process goes by its number. On the engine's own tables and indexes, by psycopg's
asynchronous connections, with prepared statements. What is left out: mailbox, blocked timers, replies,
claims, fences. In its favour.
"""

from __future__ import annotations

import asyncio
from typing import Any, LiteralString

import psycopg

from benchmarks.peers import common
from progressor.bench.measure import Figures

_NAMESPACE = "bench.chain"
_STATE = b'{"n":1}'

_NAME = """
INSERT INTO progressor.namespaces (name, options) VALUES (%(ns)s, '{}') RETURNING namespace_no
"""
_START = """
WITH process AS (
    INSERT INTO progressor.processes (
        namespace_no, process_id, status, status_changed_at, created_at, aux_state
    )
    VALUES (%(ns)s, %(id)s, 'running', now(), now(), %(state)s)
    RETURNING process_no
),

task AS (
    INSERT INTO progressor.tasks (process_no, task_type, status, scheduled_time, running_time, worker_id)
    SELECT process_no, 'timeout', 'running', now(), now(), 1 FROM process
    RETURNING process_no, task_id
)

INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
SELECT process_no, task_id, 'timeout', 1, 1, now() FROM task
RETURNING process_no, task_id
"""
_LOCK = """
SELECT status, aux_state, last_event_id FROM progressor.processes
WHERE process_no = %(no)s FOR UPDATE
"""
_PROCESS = """
UPDATE progressor.processes SET status = 'running', aux_state = %(state)s, last_event_id = %(event)s
WHERE process_no = %(no)s
"""
_EVENT = """
INSERT INTO progressor.events (process_no, event_id, task_id, timestamp, payload)
VALUES (%(no)s, %(event)s, %(task)s, now(), %(payload)s)
"""
_FINISH = """
UPDATE progressor.tasks SET status = 'finished', finished_time = now(), response = 'null'
WHERE process_no = %(no)s AND task_id = %(task)s
"""
_NEXT = """
INSERT INTO progressor.tasks (process_no, task_type, status, scheduled_time, running_time, worker_id)
VALUES (%(no)s, 'timeout', 'running', now(), now(), 1) RETURNING task_id
"""
_MOVE = """
UPDATE progressor.running SET task_id = %(next)s, running_time = now()
WHERE process_no = %(no)s AND task_id = %(task)s
"""


class _Chain:
    """One process, step by step."""

    def __init__(self, process_id: str) -> None:
        self.names: dict[str, Any] = {
            "id": process_id,
            "state": _STATE,
            "payload": common.PAYLOAD.encode(),
        }

    async def begin(self, connection: psycopg.AsyncConnection[Any], namespace_no: int) -> None:
        row = await _one(connection, _START, {**self.names, "ns": namespace_no})
        self.names["no"], self.names["task"] = row

    async def step(self, connection: psycopg.AsyncConnection[Any]) -> None:
        names = self.names
        async with connection.transaction():
            _, _, last_event_id = await _one(connection, _LOCK, names)
            names["event"] = last_event_id + 1
            await connection.execute(_PROCESS, names)
            await connection.execute(_EVENT, names)
            await connection.execute(_FINISH, names)
            (names["next"],) = await _one(connection, _NEXT, names)
            await connection.execute(_MOVE, names)
        names["task"] = names["next"]


async def _one(connection: psycopg.AsyncConnection[Any], sql: LiteralString, names: dict[str, Any]) -> Any:
    """The only row of a statement."""
    (row,) = await (await connection.execute(sql, names)).fetchall()
    return row


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
        (namespace_no,) = await _one(connection, _NAME, {"ns": _NAMESPACE})
        for each in chains:
            await each.begin(connection, namespace_no)
    working: list[asyncio.Task[None]] = []

    async def begin() -> None:
        working.extend(asyncio.create_task(work(chains[place::used])) for place in range(used))

    figures = await common.chain(dsn, steps, begin, seconds=seconds, warmup=warmup)
    await asyncio.gather(*working)
    return figures


if __name__ == "__main__":
    common.main({"chain": chain})
