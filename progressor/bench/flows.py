"""The processes that are measured: each does as little as a real one can, one 64-byte event a step."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process

CHAIN = "bench.chain"
ENTITY = "bench.entity"
TIMERS = "bench.timers"

# Slots of a worker, where the workload does not say: more than any number of clients.
CONCURRENCY = 1000
NOW = timedelta(0)
# With its JSON around it, 64 bytes.
PAD = "x" * 54


class Count(BaseModel):
    """A state that every step changes."""

    n: int = 0


class Compute(BaseModel):
    """For how long a handler keeps the event loop to itself."""

    ms: float


class Steps:
    """How many steps the handlers of one flow have run."""

    def __init__(self) -> None:
        self.count = 0
        self.going = True
        self.holding = asyncio.Event()
        """Set while one of them waits at a door."""


def chain(steps: Steps, *, concurrency: int, name: str = CHAIN) -> Namespace:
    """A process that sets itself a timer without delay in each step, until it is told to end."""
    namespace = Namespace(name, state=Count, concurrency=concurrency)

    @namespace.init
    async def init(process: Process[Count], _args: dict[str, Any]) -> None:
        process.state = Count()
        process.set_timer(after=NOW)

    @namespace.call
    async def go(process: Process[Count], _args: dict[str, Any]) -> None:
        process.set_timer(after=NOW)

    @namespace.timeout
    async def step(process: Process[Count]) -> None:
        steps.count += 1
        process.state.n += 1
        process.emit("step", pad=PAD)
        if steps.going:
            process.set_timer(after=NOW)

    return namespace


def entity(*, concurrency: int, name: str = ENTITY) -> Namespace:
    """A process that starts, and answers calls with one event each."""
    namespace = Namespace(name, state=Count, concurrency=concurrency)

    @namespace.init
    async def init(process: Process[Count], _args: dict[str, Any]) -> int:
        process.state = Count()
        return 0

    @namespace.call
    async def add(process: Process[Count], _args: dict[str, Any]) -> int:
        process.state.n += 1
        process.emit("added", pad=PAD)
        return process.state.n

    @namespace.call
    async def compute(process: Process[Count], args: Compute) -> None:
        process.state.n += 1
        until = time.perf_counter() + args.ms / 1e3
        while time.perf_counter() < until:
            pass

    return namespace


def timers(steps: Steps, *, concurrency: int, name: str = TIMERS) -> Namespace:
    """A process whose timer fires once."""
    namespace = Namespace(name, state=Count, concurrency=concurrency)

    @namespace.init
    async def init(process: Process[Count], args: dict[str, Any]) -> None:
        process.state = Count()
        process.set_timer(at=datetime.fromisoformat(args["at"]))

    @namespace.timeout
    async def fire(process: Process[Count]) -> None:
        steps.count += 1
        process.state.n += 1
        process.emit("fired", pad=PAD)

    return namespace


def mailbox(steps: Steps, door: asyncio.Event, *, concurrency: int, name: str) -> Namespace:
    """A process that answers calls, once its door is open if it was told to wait for that."""
    namespace = Namespace(name, state=Count, concurrency=concurrency, step_timeout=timedelta(hours=1))

    @namespace.init
    async def init(process: Process[Count], _args: dict[str, Any]) -> None:
        process.state = Count()

    @namespace.call
    async def hold(_process: Process[Count], _args: dict[str, Any]) -> None:
        steps.holding.set()
        await door.wait()

    @namespace.call
    async def add(process: Process[Count], _args: dict[str, Any]) -> None:
        process.state.n += 1
        process.emit("added", pad=PAD)

    @namespace.call
    async def take(process: Process[Count], _args: dict[str, Any]) -> None:
        steps.count += 1
        process.state.n += 1
        process.emit("taken", pad=PAD)

    return namespace


def held(steps: Steps, door: asyncio.Event, *, concurrency: int) -> Namespace:
    """A process whose step goes on until a door is opened."""
    namespace = Namespace(TIMERS, state=Count, concurrency=concurrency, step_timeout=timedelta(hours=1))

    @namespace.timeout
    async def hold(process: Process[Count]) -> None:
        steps.count += 1
        await door.wait()
        process.state.n += 1

    return namespace
