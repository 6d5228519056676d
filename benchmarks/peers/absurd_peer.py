"""Absurd, with its Python SDK's asynchronous client and worker.

Settings: the SQL schema and the queue as `absurdctl` makes them; a worker with as many slots as there are
clients (at least 10), and a connection of its own; a second connection for the clients, who share it. The
SDK polls, and has no notification: the worker looks every 10 ms instead of its default of 250 ms, at the
price of more queries while it is idle.

What differs. A task is a durable function with checkpoints: no keyed process, no mailbox, no order per
process. `start` spawns a task that inserts a state row in a transaction of its own, and waits, in the same
OS process, for the task's handler to have run; that the task is completed is committed later. The SDK's own
`await_task_result` polls from 50 ms on, which would be all that is measured. All of this is in its favour.
"""

from __future__ import annotations

import asyncio

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers import common
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window

_START = common.START.format("%s")
_POLL_SECONDS = 0.01
_LEAST_SLOTS, _CONNECTIONS = 10, 20


async def start(dsn: str, *, clients: int, seconds: float, warmup: float) -> Figures:
    """Tasks that clients spawn, and whose handlers they wait for."""
    ended: dict[str, asyncio.Event] = {}
    numbers = iter(range(10**9))
    _install(dsn)
    worker, client = AsyncAbsurd(dsn), AsyncAbsurd(dsn)
    await client.create_queue("default")
    async with AsyncConnectionPool(
        dsn, min_size=_CONNECTIONS, max_size=_CONNECTIONS, kwargs={"autocommit": True}
    ) as pool:

        @worker.register_task("start")
        async def begin(params: dict[str, str], _ctx: object) -> None:
            async with pool.connection() as connection:
                await connection.execute(_START, (params["process_id"],))
            ended.pop(params["process_id"]).set()

        async def act(_client: int) -> None:
            process_id = f"p{next(numbers)}"
            event = ended[process_id] = asyncio.Event()
            await client.spawn("start", {"process_id": process_id}, queue="default")
            await event.wait()

        slots = max(_LEAST_SLOTS, clients)
        working = asyncio.create_task(worker.start_worker(concurrency=slots, poll_interval=_POLL_SECONDS))
        figures = await ClosedLoop(clients, act).run(Meter(dsn), Window(seconds, warmup))
        worker.stop_worker()
        await working
    for each in (worker, client):
        await each.close()
    return figures


def _install(dsn: str) -> None:
    """Apply the schema that `absurdctl init` applies, which needs no psql here."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL.encode())
        for statement in common.TABLES.split(";"):
            connection.execute(statement.encode())


if __name__ == "__main__":
    common.main({"start": start})
