"""An engine, or a client, in an OS process of its own: to be killed and frozen.

`python -m tests.acceptance.other_process serve DSN OPTIONS` prints what its handlers do, a line each.
"""

import asyncio
import json
import logging
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from progressor import Client, Engine, Namespace, Process

NS = "bank.remote"


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


def read_options(text: str) -> dict[str, Any]:
    """Engine options from JSON, numbers being seconds."""
    return {
        name: value if isinstance(value, bool | str) else timedelta(seconds=value)
        for name, value in json.loads(text).items()
    }


async def serve(dsn: str, on_zombie: str, options: str) -> None:
    namespace = namespace_of(on_zombie=on_zombie, victim=True)
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
    asyncio.run({"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:]))
