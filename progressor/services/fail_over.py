"""The service that mends what a fail-over has lost of its OS process.

Rule: an engine states once what it serves, and holds the tasks that PostgreSQL has in its hands. A server
that lacks the last commits of the one before it may know the first no longer: it is stated again. And it
may have tasks in these hands whose steps have ended: they go back to the schedule, but none that a chain of
steps holds, or that a claim or request may yet bring which was under way at the first look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from progressor import metrics
from progressor.loggers import Logger
from progressor.node.node import Node
from progressor.node.witness import Witness
from progressor.services.service import PeriodicService
from progressor.storage import KINDS, RunningHere
from progressor.worker.pools import Pools

log = Logger("progressor.fail_over")

_REASON = "to run again: a fail-over may have lost its end"
_MOST_NAMED = 20


class FailOver(PeriodicService):
    """The service that looks, after the first beat of each server, at what that knows of this process.

    `state_again` states what the engine serves, where that is lost. The tasks that no chain of `pools`
    holds are handed back, a round or more later.
    """

    name = "fail-over"

    def __init__(
        self,
        node: Node,
        witness: Witness,
        pools: Pools,
        *,
        interval: timedelta,
        state_again: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(interval)
        self._node = node
        self._witness = witness
        self._pools = pools
        self._state_again = state_again
        # The server that was looked at last, and the one at which all is stated.
        self._looked_at = self._stated_at = ""
        # What it had in these hands, and what was under way then.
        self._found: set[RunningHere] = set()
        self._under_way: frozenset[object] = frozenset()

    async def run_once(self) -> timedelta | None:
        """Look at a server that is another one, or hand back what is lost of what it had."""
        server = self._witness.server
        if server is None:
            return None
        if server != self._looked_at:
            self._found = await self._running_here()
            self._under_way = self._pools.under_way
            self._looked_at = server
        elif self._found and not self._under_way & self._pools.under_way:
            await self._hand_back()
        if server != self._stated_at:
            await self._state_again()
            self._stated_at = server
        return None

    async def _running_here(self) -> set[RunningHere]:
        """Return the tasks that PostgreSQL has in the hands of this worker."""
        return set(await self._node.storage.running_here(self._node.node_id))

    async def _hand_back(self) -> None:
        """Hand back what nothing here runs any more; those that a chain holds are looked at again."""
        left = self._found & await self._running_here()
        held = self._pools.held
        lost = sorted(each for each in left if each.process_no not in held)
        if lost:
            await self._node.storage.hand_back_lost(lost, _REASON)
        self._found = left.difference(lost)
        for name in dict.fromkeys(each.namespace for each in lost):
            of_it = [each.process_id for each in lost if each.namespace == name]
            metrics.RUN_AGAIN.labels(name).inc(len(of_it))
            log.warning(
                "a fail-over may have lost the ends of steps, their tasks run again",
                extra={"namespace": name, "steps": len(of_it), "processes": of_it[:_MOST_NAMED]},
            )
            for kind in KINDS:
                self._pools.ring(name, kind)
