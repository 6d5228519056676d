"""An engine, or a client, in an OS process of its own: to be killed and frozen.

`python -m tests.acceptance.other_process serve DSN OPTIONS` prints what its handlers do, a line each.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from progressor import Client, Cron, Each, Engine, Namespace, Process, Rate

NS, LIMITED, ORDERS = "bank.remote", "bank.limited", "bank.orders"
RATE = Rate(100, per=timedelta(seconds=1), burst=5)


class Work(BaseModel):
    """What a handler does when it runs in the process that is to be killed."""

    hold: str | None = None
    """Wait until a file of this name exists."""
    block: float | None = None
    """Block the event loop for so many seconds."""


def say(text: str) -> None:
    print(text, flush=True)


def namespace_of(*, on_zombie: str, victim: bool) -> Namespace:
    namespace = Namespace(NS, on_zombie=on_zombie)  # type: ignore[arg-type]

    @namespace.init
    async def init(process: Process) -> None:
        process.state = 0

    @namespace.call
    async def work(process: Process, args: Work) -> int:
        return await do(process, args)

    @namespace.call
    async def arm(process: Process) -> None:
        process.metadata["armed"] = True
        process.set_timer(after=timedelta(0))

    @namespace.timeout
    async def fire(process: Process) -> None:
        await do(process, Work(hold="/nowhere"))

    @namespace.repair
    async def repair(process: Process) -> None:
        process.emit("mended")

    async def do(process: Process, args: Work) -> int:
        if victim:
            say(f"begun {process.process_id}")
            if args.block is not None:
                time.sleep(args.block)  # noqa: ASYNC251 - the point of it
            while args.hold is not None and not Path(args.hold).exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.01)
        process.state += 1
        process.emit("worked")
        return process.state

    return namespace


def limited() -> Namespace[int]:
    """Its steps take so long that one worker alone cannot begin as many as the rate admits."""
    namespace = Namespace(LIMITED, state=int, rate=RATE, concurrency=1)

    @namespace.init
    async def init(process: Process[int]) -> None:
        process.state = 0

    @namespace.call
    async def work(process: Process[int]) -> int:
        await asyncio.sleep(0.02)
        process.state += 1
        return process.state

    return namespace


def orders(*, dies_at: int | None = None) -> Namespace[int]:
    """Its schedule notifies all its processes; it dies as it makes the arguments of so many notices.

    Notices that it runs at that moment run again.
    """
    namespace = Namespace(ORDERS, state=int, on_zombie="retry")
    made = 0

    @namespace.init
    async def init(process: Process[int]) -> None:
        process.state = 0

    @namespace.call
    async def close(process: Process[int]) -> None:
        process.state += 1

    def args(_at: datetime) -> None:
        nonlocal made
        made += 1
        if made == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    namespace.schedule("closing", Cron("0 0 1 1 *"), each=Each(close), args=args)
    return namespace


def read_options(text: str) -> dict[str, Any]:
    """Engine options from JSON, numbers being seconds."""
    return {
        name: value if isinstance(value, bool | str) else timedelta(seconds=value)
        for name, value in json.loads(text).items()
    }


async def serve(dsn: str, on_zombie: str, options: str) -> None:
    await serve_one(dsn, namespace_of(on_zombie=on_zombie, victim=True), options)


async def limit(dsn: str, options: str) -> None:
    await serve_one(dsn, limited(), options)


async def send(dsn: str, dies_at: str, options: str) -> None:
    await serve_one(dsn, orders(dies_at=int(dies_at)), options)


async def serve_one(dsn: str, namespace: Namespace[Any], options: str) -> None:
    async with Engine(dsn, [namespace], **read_options(options)):
        say("ready")
        await asyncio.Event().wait()


async def ask(dsn: str, options: str) -> None:
    async with Client(dsn, **read_options(options)) as client:
        process = client.process("bank.account", "asked")
        answers = [await process.start({"add": 1})]
        answers += await asyncio.gather(*(process.call("act", {"add": 1}) for _ in range(5)))
        say(json.dumps(answers))


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
    asyncio.run({"serve": serve, "limit": limit, "send": send, "ask": ask}[sys.argv[1]](*sys.argv[2:]))
