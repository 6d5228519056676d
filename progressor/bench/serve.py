"""`python -m progressor.bench.serve`: a worker in an OS process of its own, for a client of another."""

from __future__ import annotations

import asyncio

from progressor.bench import flows
from progressor.bench.children import read_line, write_line
from progressor.deployment.loops import serving
from progressor.engine import Engine


async def _serve(dsn: str) -> None:
    async with Engine(dsn, [flows.entity()]):
        write_line("serving")
        await asyncio.to_thread(read_line)


if __name__ == "__main__":
    with serving() as runner:
        runner.run(_serve(read_line()))
