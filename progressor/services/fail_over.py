"""The service that mends what a fail-over, or a restore, has lost of its OS process.

Rule: an engine states once what it serves. A server that lacks the last commits of the one before it may
not know that: then it is stated again. It may also have tasks in the hands of this process that have ended:
they go back to the schedule. None does on the word of one look, because its claim may be under way.
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

_REASON = "to run again: its end was lost in a fail-over"
_MOST_NAMED = 20


class FailOver(PeriodicService):
    """The service that looks, after each beat of another server, at what that knows of this process.

    `state_again` states what the engine serves, where that is lost. A task that no chain of `pools` holds,
    at two looks an `interval` apart, is handed back.
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
        self._met: str | None = None
        self._suspects: set[RunningHere] = set()

    async def run_once(self) -> timedelta | None:
        """Look, if another server has taken the last beat; hand back what a look before this one found."""
        server = self._witness.server
        if self._met is None:
            # What the engine has stated, it has stated there.
            self._met = server
        if server is not None and server != self._met:
            await self._state_again()
            self._suspects = await self._not_held()
            self._met = server
        elif self._suspects:
            lost = self._suspects & await self._not_held()
            if lost:
                await self._hand_back(sorted(lost))
            self._suspects.clear()
        return None

    async def _not_held(self) -> set[RunningHere]:
        """Return the tasks that PostgreSQL has in the hands of this worker, and that no chain holds."""
        found = await self._node.storage.running_here(self._node.node_id)
        held = self._pools.held
        return {each for each in found if each.process_no not in held}

    async def _hand_back(self, lost: list[RunningHere]) -> None:
        await self._node.storage.hand_back_lost(lost, _REASON)
        for name in dict.fromkeys(each.namespace for each in lost):
            of_it = [each.process_id for each in lost if each.namespace == name]
            metrics.RUN_AGAIN.labels(name).inc(len(of_it))
            log.warning(
                "ends of steps were lost in a fail-over, their tasks run again",
                extra={"namespace": name, "steps": len(of_it), "processes": of_it[:_MOST_NAMED]},
            )
            for kind in KINDS:
                self._pools.ring(name, kind)
