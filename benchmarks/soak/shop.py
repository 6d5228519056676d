"""The processes of the soak: counters that are called, notified, ticked, broken, repaired and removed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from progressor import Namespace, Process

NAMESPACE = "soak.counter"
TICK = timedelta(seconds=7)
RETIRE_AFTER = timedelta(seconds=1)


class BrokenOnPurposeError(Exception):
    """What a repair is for."""


def counter() -> Namespace:
    """A namespace in which every kind of step occurs."""
    ns = Namespace(NAMESPACE, concurrency=50)

    @ns.init
    async def start(process: Process[Any], args: dict[str, Any]) -> int:
        process.state = {"count": 0, "ticks": 0, "padding": args["padding"]}
        process.metadata["batch"] = args["batch"]
        process.emit("started")
        process.set_timer(after=TICK)
        return 0

    @ns.call
    async def add(process: Process[Any], args: dict[str, int]) -> int:
        process.state["count"] += args["amount"]
        process.emit("added", amount=args["amount"])
        return int(process.state["count"])

    @ns.call(name="break")
    async def break_it(_process: Process[Any]) -> None:
        raise BrokenOnPurposeError("as asked")

    @ns.call
    async def retire(process: Process[Any]) -> None:
        process.set_timer(after=RETIRE_AFTER, remove=True)

    @ns.timeout
    async def tick(process: Process[Any]) -> None:
        process.state["ticks"] += 1
        process.emit("ticked")
        process.set_timer(after=TICK)

    @ns.repair
    async def mend(process: Process[Any]) -> None:
        process.emit("mended")
        process.set_timer(after=TICK)

    return ns
