"""DBOS Transact, as its own benchmark runs it: async workflows started in the process that executes them.

Settings: asynchronous workflows and steps, the system database's pool at its default of 20 (measured here:
more connections make it slower on few cores), LISTEN/NOTIFY on, the admin server off.

What differs. A process is a workflow and a step is a `@DBOS.step`, whose return value, the 64-byte event,
is its checkpoint: one row a step. There is no state row to change beside it (a workflow's state is what its
replay computes), no schedule and no running row, so it writes less a step than the others. But a workflow
replays all of its checkpoints to come back, and cannot be called by others as a keyed entity: there is no
`call`. `start` calls a workflow without steps and awaits its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote, urlencode

from dbos import DBOS, SetWorkflowID

from benchmarks.peers import common
from progressor.bench.measure import ClosedLoop, Figures

_POOL = 20


def _url(dsn: str) -> str:
    parts = common.connect_keywords(dsn)
    where = urlencode({"host": parts["host"], "port": parts.get("port", 5432)})
    user = quote(parts["user"]) + (f":{quote(parts['password'])}" if "password" in parts else "")
    return f"postgresql://{user}@/{parts['database']}?{where}"


@asynccontextmanager
async def _dbos(dsn: str) -> AsyncIterator[None]:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": _url(dsn),
            "sys_db_pool_size": _POOL,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    yield
    DBOS.destroy()


async def chain(dsn: str, *, processes: int, seconds: float, warmup: float) -> Figures:
    """Workflows that run steps until they are told to end."""
    steps = common.Steps()
    async with _dbos(dsn):

        @DBOS.step()
        async def step(_number: int) -> str:
            steps.count += 1
            return common.PAYLOAD

        @DBOS.workflow()
        async def go() -> int:
            number = 0
            while steps.going:
                await step(number)
                number += 1
            return number

        DBOS.launch()

        async def begin() -> None:
            for number in range(processes):
                with SetWorkflowID(f"p{number}"):
                    await DBOS.start_workflow_async(go)

        figures = await common.chain(dsn, steps, begin, seconds=seconds, warmup=warmup)
        # Their ends are not part of it, and the way to all results is long.
        await asyncio.sleep(1)
    return figures


async def start(dsn: str, *, clients: int, seconds: float, warmup: float) -> Figures:
    """Workflows without steps, each awaited."""
    numbers = iter(range(10**9))
    async with _dbos(dsn):

        @DBOS.workflow()
        async def trivial() -> int:
            return 0

        DBOS.launch()

        async def act(_client: int) -> None:
            with SetWorkflowID(f"p{next(numbers)}"):
                await trivial()

        figures = await ClosedLoop(clients, act).run(dsn, warmup=warmup, seconds=seconds)
    return figures


if __name__ == "__main__":
    common.main({"chain": chain, "start": start})
