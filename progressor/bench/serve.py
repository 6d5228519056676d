"""`python -m progressor.bench.serve`: a worker in an OS process of its own, for a client of another."""

from __future__ import annotations

import asyncio

from progressor.bench import flows
from progressor.bench.children import heard, say
from progressor.deployment.loops import serving
from progressor.engine import Engine


async def _serve(dsn: str) -> None:
    async with Engine(dsn, [flows.entity(concurrency=flows.CONCURRENCY)]):
        say("serving")
        await asyncio.to_thread(heard)


if __name__ == "__main__":
    with serving() as runner:
        runner.run(_serve(heard()))
