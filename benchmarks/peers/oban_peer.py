"""Oban for Python, which needs Python 3.12, embedded as its guide says.

Settings: one queue with as many slots as there are chains or clients (at least 10), a pool of 20
connections that the jobs use too, `debounce_interval` at 1 ms instead of 5: so often it fetches while jobs
run. New jobs are told by NOTIFY.

What differs. It is a queue: no keyed process, no state, no answer, no order per process. A step is a job
that changes the application's state, writes its event and enqueues its successor in one transaction, as
Oban recommends. That a job has ended is committed with others' in a later one; after a crash in between it
runs again. `start` waits, in the same OS process, for the job's handler to have run. This is in its favour.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oban import Job, Oban, worker
from oban.schema import install_sql
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers import common
from progressor.bench.databases import run_sql
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window

_STEP = common.STEP.format("%(process_id)s", "%(payload)s")
_START = common.START.format("%(process_id)s")
_QUEUE, _CONNECTIONS, _LEAST_SLOTS = "default", 20, 10


@asynccontextmanager
async def _running(dsn: str, slots: int) -> AsyncIterator[tuple[Oban, AsyncConnectionPool]]:
    """Have jobs run, on connections of a pool."""
    run_sql(dsn, install_sql())
    run_sql(dsn, common.TABLES)
    queue = {"limit": max(_LEAST_SLOTS, slots), "debounce_interval": 0.001}
    async with (
        AsyncConnectionPool(dsn, min_size=_CONNECTIONS, max_size=_CONNECTIONS, timeout=60) as pool,
        Oban(pool=pool, queues={_QUEUE: queue}) as oban,
    ):
        yield oban, pool


async def chain(dsn: str, *, processes: int, seconds: float, warmup: float) -> Figures:
    """Jobs that enqueue their successors."""
    steps = common.Steps()
    async with _running(dsn, processes) as (oban, pool):

        @worker(queue=_QUEUE)
        class Step:
            async def process(self, job: Job) -> None:
                async with pool.connection() as connection:
                    await connection.execute(_STEP, {**job.args, "payload": common.PAYLOAD})
                    if steps.going:
                        await oban.enqueue(Step.new(job.args), conn=connection)
                steps.count += 1

        async def begin() -> None:
            for number in range(processes):
                args = {"process_id": f"p{number}"}
                async with pool.connection() as connection:
                    await connection.execute(_START, args)
                    await oban.enqueue(Step.new(args), conn=connection)

        return await common.chain(dsn, steps, begin, seconds=seconds, warmup=warmup)


async def start(dsn: str, *, clients: int, seconds: float, warmup: float) -> Figures:
    """Jobs that clients enqueue, and whose handlers they wait for."""
    ended: dict[str, asyncio.Event] = {}
    numbers = iter(range(10**9))
    async with _running(dsn, clients) as (oban, pool):

        @worker(queue=_QUEUE)
        class Begin:
            async def process(self, job: Job) -> None:
                async with pool.connection() as connection:
                    await connection.execute(_START, job.args)
                ended.pop(job.args["process_id"]).set()

        async def act(_client: int) -> None:
            process_id = f"p{next(numbers)}"
            event = ended[process_id] = asyncio.Event()
            await oban.enqueue(Begin.new({"process_id": process_id}))
            await event.wait()

        return await ClosedLoop(clients, act).run(Meter(dsn), Window(seconds, warmup))


if __name__ == "__main__":
    common.main({"chain": chain, "start": start})
