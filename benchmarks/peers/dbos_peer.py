"""DBOS Transact, as its own benchmark runs it: async workflows started in the process that executes them.

Settings: asynchronous workflows and steps, the system database's pool at its default of 20,
LISTEN/NOTIFY on, the admin server off.

What differs. A process is a workflow and a step is a `@DBOS.step`, whose return value, the 64-byte event,
is its checkpoint: one row a step. There is no state row to change beside it (a workflow's state is what its
replay computes), no schedule and no running row, so it writes less a step than the others. But a workflow
replays all of its checkpoints to come back, and cannot be called by others as a keyed entity: there is no
`call`. `start` calls a workflow without steps and awaits its result.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from dbos import DBOS, SetWorkflowID

from benchmarks.peers import common
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window

_POOL = 20


def _url(dsn: str) -> str:
    parts = common.connect_keywords(dsn)
    where = urlencode({"host": parts["host"], "port": parts.get("port", 5432)})
    user = quote(parts["user"]) + (f":{quote(parts['password'])}" if "password" in parts else "")
    return f"postgresql://{user}@/{parts['database']}?{where}"


def _configure(dsn: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": _url(dsn),
            "sys_db_pool_size": _POOL,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )


async def chain(dsn: str, *, processes: int, seconds: float, warmup: float) -> Figures:
    """Workflows that run steps until they are told to end."""
    steps = common.Steps()
    _configure(dsn)

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

    return await common.chain(dsn, steps, begin, seconds=seconds, warmup=warmup)


async def start(dsn: str, *, clients: int, seconds: float, warmup: float) -> Figures:
    """Workflows without steps, each awaited."""
    numbers = iter(range(10**9))
    _configure(dsn)

    @DBOS.workflow()
    async def trivial() -> int:
        return 0

    DBOS.launch()

    async def act(_client: int) -> None:
        with SetWorkflowID(f"p{next(numbers)}"):
            await trivial()

    return await ClosedLoop(clients, act).run(Meter(dsn), Window(seconds, warmup))


if __name__ == "__main__":
    common.main({"chain": chain, "start": start})
