"""The engine of a world: the real one, on the world's clock.

Rule: due times are the world's; leases, heartbeats and time-outs of steps pass in real time. No scanner
and no zombie collector run: the world looks for work itself, and all steps are of its own OS process.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from progressor.app.app import App
from progressor.engine import Engine
from progressor.model import Decision
from progressor.node.node import Node
from progressor.node.witness import Witness
from progressor.services.bulk_runner import bulk_runner_on
from progressor.services.service import PeriodicService
from progressor.storage import Claimed, Clock, Kind, StepTransaction
from progressor.worker.bells import Bells
from progressor.worker.pool import Pool
from progressor.worker.pools import Pools
from progressor.worker.slot import Slot
from progressor.worker.worker import StepResult, Worker


class RepeatingWorker(Worker):
    """A worker that can run each handler twice, the first time as if it died before the save."""

    repeats = False

    async def step(self, held: Claimed, slot: Slot) -> StepResult:
        """Run one task, in two transactions one after the other if its handler runs SQL of its own."""
        function = self._namespace.find(held.task.task_type, held.task.name)
        if self.repeats and function is not None and function.connection is not None:
            async with self.connections.transaction(
                function, function.connection, seconds=self.deadlines.seconds
            ) as lost:
                await self._run_and_lose(held, slot, lost)
        return await super().step(held, slot)

    async def run_handler(self, held: Claimed, slot: Slot, own: StepTransaction | None = None) -> Decision:
        """Run the handler of a task; the last run decides."""
        if self.repeats and own is None:
            await self._run_and_lose(held, slot)
        return await super().run_handler(held, slot, own)

    async def _run_and_lose(self, held: Claimed, slot: Slot, own: StepTransaction | None = None) -> None:
        await super().run_handler(held, slot, own)
        self._budget.give_back(slot)


class WorldBells(Bells):
    """Bells that never rest, for their world says when a task may begin."""

    def rest(self, kind: Kind, delay: timedelta) -> None:
        """Do nothing."""


class WorldPool(Pool):
    """A pool that rests for no real time."""

    _bells_type = WorldBells


class VirtualEngine(Engine):
    """An engine in virtual time."""

    _worker_type = RepeatingWorker
    _pool_type = WorldPool

    def __init__(self, dsn: str, app: App, *, clock: Clock, **options: Any) -> None:
        super().__init__(dsn, app, **options)
        self._clock = clock

    def _made_node(self, pools: Pools) -> Node:
        return Node(self._dsn, self.options, ring=pools.ring, clock=self._clock)

    def _services(self, node: Node, witness: Witness, pools: Pools) -> Sequence[PeriodicService]:  # noqa: ARG002 - the parent's
        return [bulk_runner_on(node, self.options)]

    def repeat(self) -> None:
        """Run each handler twice from now on."""
        for worker in self._parts.workers:
            if isinstance(worker, RepeatingWorker):
                worker.repeats = True
