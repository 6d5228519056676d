"""PgQueuer, as its performance-tuning guide has it.

Settings: durability `durable` (its default), `pgq autovac` applied, asyncpg, one connection for the queue
manager and a pool for those who enqueue, a batch size above the default of 10, no concurrency limit (the
limits cost it queries): a batch of 100 at many chains, 10 at one.

What differs. It is a queue: no state, no history, no mailbox, no order per process, no answer.
A step is a job that changes the application's state and event in one statement, and enqueues its successor
in another: two transactions, and a third (of up to a batch of jobs, after the step) for the job's end; a
crash between them loses or repeats a part. `start` waits, in the same OS process, for the job's handler to
have run; that the job is done is committed later, in a batch. All of this is in its favour.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers import common
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window

_STEP = common.STEP.format("$1", "$2")
_START = common.START.format("$1")


class _Queue:
    """A queue manager that runs, and what to enqueue with."""

    def __init__(self, manager: PgQueuer, pool: asyncpg.Pool) -> None:
        self.manager = manager
        self.pool = pool
        self.queries = Queries(AsyncpgPoolDriver(pool))

    async def run(self, batch_size: int) -> None:
        await self.manager.run(batch_size=batch_size, dequeue_timeout=timedelta(seconds=1))


@asynccontextmanager
async def _queue(dsn: str) -> AsyncIterator[_Queue]:
    keywords = common.connect_keywords(dsn)
    connection = await asyncpg.connect(**keywords)
    async with asyncpg.create_pool(min_size=20, max_size=20, **keywords) as pool:
        installer = Queries(AsyncpgDriver(connection))
        await installer.install()
        await installer.optimize_autovacuum()
        await connection.execute(common.TABLES)
        yield _Queue(PgQueuer(AsyncpgDriver(connection)), pool)


def _batch(concurrency: int) -> int:
    return 10 if concurrency == 1 else 100


async def chain(dsn: str, *, processes: int, seconds: float, warmup: float) -> Figures:
    """Jobs that enqueue their successors."""
    steps = common.Steps()
    ids = [f"p{number}" for number in range(processes)]
    async with _queue(dsn) as queue:

        @queue.manager.entrypoint("step")
        async def step(job: Job) -> None:
            process_id = (job.payload or b"").decode()
            await queue.pool.execute(_STEP, process_id, common.PAYLOAD)
            if steps.going:
                await queue.queries.enqueue("step", job.payload)
            steps.count += 1

        async def begin() -> None:
            await queue.pool.executemany(_START, [(each,) for each in ids])
            await queue.queries.enqueue(
                ["step"] * processes, [each.encode() for each in ids], [0] * processes
            )

        running = asyncio.create_task(queue.run(_batch(processes)))
        figures = await common.chain(dsn, steps, begin, seconds=seconds, warmup=warmup)
        queue.manager.shutdown.set()
        await running
    return figures


async def start(dsn: str, *, clients: int, seconds: float, warmup: float) -> Figures:
    """Jobs that clients enqueue, and whose handlers they wait for."""
    ended: dict[str, asyncio.Event] = {}
    numbers = iter(range(10**9))
    async with _queue(dsn) as queue:

        @queue.manager.entrypoint("start")
        async def begin(job: Job) -> None:
            process_id = (job.payload or b"").decode()
            await queue.pool.execute(_START, process_id)
            ended.pop(process_id).set()

        async def act(_client: int) -> None:
            process_id = f"p{next(numbers)}"
            event = ended[process_id] = asyncio.Event()
            await queue.queries.enqueue("start", process_id.encode())
            await event.wait()

        running = asyncio.create_task(queue.run(_batch(clients)))
        figures = await ClosedLoop(clients, act).run(Meter(dsn), Window(seconds, warmup))
        queue.manager.shutdown.set()
        await running
    return figures


if __name__ == "__main__":
    common.main({"chain": chain, "start": start})
