"""The pools of an OS process, by namespace.

Rule: `Pools` is made first and filled once, so that the pools and whatever uses them are wired by
constructors. A client that runs nothing itself has none.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from progressor.storage import Kind
from progressor.worker.pool import Pool
from progressor.worker.slot import UnderWay


class Pools(dict[str, Pool]):
    """The slots of each namespace that is served here."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = UnderWay()

    def add(self, pool: Pool) -> None:
        self[pool.namespace.name] = pool

    @property
    def busy(self) -> int:
        """The number of chains of steps that run."""
        return sum(pool.busy for pool in self.values())

    @property
    def held(self) -> set[int]:
        """The numbers of the processes on which chains of steps run."""
        return {number for pool in self.values() for number in pool.held}

    @property
    def under_way(self) -> frozenset[object]:
        """The claims and requests that may yet bring tasks of which no chain of steps has begun."""
        return self.requests.now.union(*(pool.claims.now for pool in self.values()))

    @property
    def is_idle(self) -> bool:
        """Return whether all slots are free and no task is known to wait."""
        return all(pool.is_idle for pool in self.values())

    async def idle(self) -> None:
        """Wait until all slots are free and no task is known to wait."""
        for pool in self.values():
            while not pool.is_idle:
                pool.drained.clear()
                await pool.drained.wait()

    def free_slots(self) -> dict[str, int]:
        """Return the free slots by namespace, by which others choose the worker to wake."""
        return {name: max(0, pool.free) for name, pool in self.items()}

    def ring(self, namespace: str, kind: Kind) -> None:
        """Ring the pool of a namespace, if it is served here: there may be work of this kind."""
        pool = self.get(namespace)
        if pool is not None:
            pool.ring(kind)

    async def run_next(self, namespace: str, process_no: int) -> bool:
        """Run the next task of a process in a lent slot; return False if none was run."""
        return await self[namespace].run_next(process_no)

    async def stop(self, grace: timedelta) -> bool:
        """Stop claiming and let what runs finish; return True if all of it did within `grace`."""
        return all(await asyncio.gather(*(pool.stop(grace) for pool in self.values())))
