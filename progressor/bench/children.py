"""Other OS processes of a benchmark: they read lines from stdin, answer on stdout, and end with stdin.

Rule: a DSN may hold a password, so it is never on a command line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class BenchChild:
    """The parent's end of a child, which answers each line of JSON with one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, question: Any) -> Any:
        """Send one line, and return the answer; RuntimeError if the child ends without one."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a child without pipes")
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        await self._process.stdin.drain()
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the child ended with status {await self._process.wait()}")
        return json.loads(answer)


@asynccontextmanager
async def child(module: str, first: Any) -> AsyncIterator[BenchChild]:
    """Run `python -m module` within the block, which begins when it has answered its first line.

    At the end its stdin is closed; after 40 seconds it is killed.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        one = BenchChild(process)
        await one.ask(first)
        yield one
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(40):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def write_line(answer: Any) -> None:
    """Write one line of JSON to the parent; for the child's side."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def read_line() -> Any:
    """Read the parent's next line; None when the parent closes stdin. For the child's side."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None
