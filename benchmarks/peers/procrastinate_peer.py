"""Procrastinate, with its documented settings for throughput.

Settings: the asynchronous psycopg connector with a pool as large as the work, async tasks with the
worker's `concurrency` at the number of chains or clients, LISTEN/NOTIFY on, `delete_jobs="successful"` (its
guide for keeping the jobs' table small). Its poll every 5 s would be the measure of a single chain, as a
notification that comes while the worker fetches is sometimes lost: it polls every 0.1 s here.

What differs. It is a queue: no state, no history, no answer. A step is a job that changes the
application's state and event in one statement and defers its successor in another; the worker fetches each
job, and ends it, in further ones. A crash between them loses or repeats a part. `start` waits, in the same
OS process, for the job's handler to have run, which is before its end is committed. In its favour.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector

from benchmarks.peers import common
from progressor.bench.databases import run_sql
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window

_STEP = common.STEP.format("%(process_id)s", "%(payload)s")
_START = common.START.format("%(process_id)s")
_POOL = 20


@asynccontextmanager
async def _app(dsn: str) -> AsyncIterator[App]:
    run_sql(dsn, common.TABLES)
    app = App(connector=PsycopgConnector(conninfo=dsn, min_size=_POOL, max_size=_POOL, timeout=60))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield app


async def _worker(app: App, concurrency: int) -> asyncio.Task[None]:
    worker = asyncio.create_task(
        app.run_worker_async(
            concurrency=max(2, concurrency),
            delete_jobs="successful",
            listen_notify=True,
            fetch_job_polling_interval=0.1,
            install_signal_handlers=False,
            shutdown_graceful_timeout=5,
        )
    )
    # What is deferred before it listens, it finds by its next poll only, seconds later.
    await asyncio.sleep(1)
    return worker


async def _stop(worker: asyncio.Task[None]) -> None:
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def chain(dsn: str, *, processes: int, seconds: float, warmup: float) -> Figures:
    """Jobs that defer their successors."""
    steps = common.Steps()
    async with _app(dsn) as app:

        @app.task(name="step")
        async def step(process_id: str) -> None:
            await app.connector.execute_query_async(_STEP, process_id=process_id, payload=common.PAYLOAD)
            if steps.going:
                await step.defer_async(process_id=process_id)
            steps.count += 1

        async def begin() -> None:
            for number in range(processes):
                await app.connector.execute_query_async(_START, process_id=f"p{number}")
                await step.defer_async(process_id=f"p{number}")

        worker = await _worker(app, processes)
        figures = await common.chain(dsn, steps, begin, seconds=seconds, warmup=warmup)
        await _stop(worker)
    return figures


async def start(dsn: str, *, clients: int, seconds: float, warmup: float) -> Figures:
    """Jobs that clients defer, and whose handlers they wait for."""
    ended: dict[str, asyncio.Event] = {}
    numbers = iter(range(10**9))
    async with _app(dsn) as app:

        @app.task(name="start")
        async def begin(process_id: str) -> None:
            await app.connector.execute_query_async(_START, process_id=process_id)
            ended.pop(process_id).set()

        async def act(_client: int) -> None:
            process_id = f"p{next(numbers)}"
            event = ended[process_id] = asyncio.Event()
            await begin.defer_async(process_id=process_id)
            await event.wait()

        worker = await _worker(app, clients)
        figures = await ClosedLoop(clients, act).run(Meter(dsn), Window(seconds, warmup))
        await _stop(worker)
    return figures


if __name__ == "__main__":
    common.main({"chain": chain, "start": start})
