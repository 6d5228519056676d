"""`python -m benchmarks.soak.worker`: the engine in an OS process of its own, whose memory is watched.

The DSN is the first line of stdin (it may hold a password); it ends with its stdin.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from benchmarks.soak.shop import counter
from progressor import Engine


async def _serve(dsn: str) -> None:
    # Calls fail on purpose, some three in a hundred.
    logging.getLogger("progressor").setLevel(logging.CRITICAL)
    async with Engine(dsn, [counter()]):
        sys.stdout.write("serving\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(_serve(sys.stdin.readline().strip()))
