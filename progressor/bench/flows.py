"""The processes of the benchmarks, which do as little as a real one can, and their names."""

from __future__ import annotations

import hashlib
import time
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process

CHAIN = "bench.chain"
ENTITY = "bench.entity"
TIMERS = "bench.timers"

# Slots of a worker unless the workload sets them; more than any number of clients.
CONCURRENCY = 1000
NOW = timedelta(0)
# Characters of an event; 64 bytes with the JSON around them.
PAD = "x" * 54


class Count(BaseModel):
    """A state that every step changes."""

    n: int = 0


class Compute(BaseModel):
    """The milliseconds for which a handler blocks the event loop."""

    ms: float


class Steps:
    """The number of steps that the handlers of one flow have run; `going` lets chains go on."""

    def __init__(self) -> None:
        self.count = 0
        self.going = True


def chain(steps: Steps, processes: int, *, name: str = CHAIN) -> Namespace:
    """Return a namespace whose processes set a timer without delay in each step, while `steps.going`."""
    namespace = Namespace(name, state=Count, concurrency=max(100, processes))

    @namespace.init
    async def init(process: Process[Count], _args: dict[str, Any]) -> None:
        process.state = Count()
        process.set_timer(after=NOW)

    @namespace.timeout
    async def step(process: Process[Count]) -> None:
        steps.count += 1
        process.state.n += 1
        process.emit("step", pad=PAD)
        if steps.going:
            process.set_timer(after=NOW)

    return namespace


def entity(name: str = ENTITY) -> Namespace:
    """Return a namespace whose processes start, and answer calls with one event each."""
    namespace = Namespace(name, state=Count, concurrency=CONCURRENCY)

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


def timers(steps: Steps, name: str = TIMERS) -> Namespace:
    """Return a namespace whose processes have a timer that fires once."""
    namespace = Namespace(name, state=Count, concurrency=CONCURRENCY)

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


@dataclass(frozen=True, slots=True)
class Names:
    """A namespace, and the ids of its processes by number; the SQL of `rows.py` makes the same ids."""

    namespace: str
    prefix: str
    uuids: bool = False
    """True: ids are like random UUIDs, spread over the whole key space."""

    def process_id(self, number: int) -> str:
        plain = f"{self.prefix}{number}"
        if not self.uuids:
            return plain
        return str(uuid.UUID(hashlib.md5(plain.encode(), usedforsecurity=False).hexdigest()))
