"""The application that several OS processes serve. Its handlers say in which one they run."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from progressor import Namespace, Process

tills = Namespace("till", state=int, on_zombie="retry")


@tills.init
async def open_till(process: Process[int]) -> None:
    process.state = 0


@tills.call
async def add(process: Process[int]) -> int:
    process.state += 1
    process.emit("added")
    return os.getpid()


@tills.call
async def add_later(process: Process[int], gate: str) -> int:
    """Add once a file appears."""
    _say_begun()
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - another process opens the gate
        await asyncio.sleep(0.01)
    return await add(process)


@tills.call
async def hog(process: Process[int]) -> None:
    """Block the event loop."""
    _say_begun()
    time.sleep(60)  # noqa: ASYNC251 - what a bad handler does


def _say_begun() -> None:
    print(f"step begun in {os.getpid()}", flush=True)
