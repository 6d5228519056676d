"""The faults: nodes are killed and frozen, PostgreSQL is restarted as after a crash, standbys are promoted.

Rule: seeded. The first round has one of each kind, then they are drawn.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.chaos.copies import Copy
from benchmarks.chaos.server import Server
from benchmarks.chaos.supervisor import Member
from benchmarks.linearizability.objects import LEASE_SECONDS

_LOST_SECONDS = 0.5
_NOTHING = "SELECT"

FAULTS = (
    "kill a node",
    "freeze a node",
    "restart PostgreSQL, immediate",
    "synchronous promotion",
    "asynchronous promotion",
)


@dataclass(frozen=True, slots=True)
class Loss:
    """Between these moments commits were made that are gone."""

    begun: float
    ended: float


class Nemesis:
    """Injects; `done` and `losses` are the record."""

    def __init__(
        self, server: Server, nodes: Sequence[Member], *, kinds: Sequence[str], seed: int, pause: float
    ) -> None:
        self._server = server
        self._kinds = kinds
        self._nodes = nodes
        self._random = random.Random(seed)
        self._pause = pause
        self.done: list[str] = []
        self.losses: list[Loss] = []

    async def run(self, seconds: float) -> None:
        """Inject for so long, and at least one of each kind."""
        end = time.monotonic() + seconds
        first = self._random.sample(self._kinds, len(self._kinds))
        while first or time.monotonic() < end:
            kind = first.pop() if first else self._random.choice(self._kinds)
            await self._inject(kind)
            self.done.append(kind)
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * self._pause)

    async def _inject(self, kind: str) -> None:
        node = self._random.choice(self._nodes)
        match kind:
            case "kill a node":
                node.send(signal.SIGKILL)
            case "freeze a node":
                node.freeze()
                await asyncio.sleep(LEASE_SECONDS * self._random.uniform(1.3, 2.2))
                node.thaw()
            case "restart PostgreSQL, immediate":
                await asyncio.to_thread(self._server.restart, signal.SIGQUIT)
            case "synchronous promotion":
                await self._promote(synchronously=True)
            case "asynchronous promotion":
                await self._promote(synchronously=False)
            case _:
                raise ValueError(f"no such fault: {kind}")

    async def _promote(self, *, synchronously: bool) -> None:
        copy = await asyncio.to_thread(Copy, self._server)
        try:
            await asyncio.to_thread(copy.follow, synchronously=synchronously)
            begun = time.monotonic()
            if not synchronously:
                await asyncio.to_thread(copy.fall_behind)
            await asyncio.sleep(_LOST_SECONDS)
            await asyncio.to_thread(copy.take_over, _NOTHING)
            if not synchronously:
                self.losses.append(Loss(begun, time.monotonic()))
        finally:
            await asyncio.to_thread(copy.remove)
