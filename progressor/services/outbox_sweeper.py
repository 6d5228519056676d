"""The outbox sweeper: it has messages delivered that nobody else delivers, and publishes how many wait.

Rule: it finds what a dead worker left, and what is to be tried again. It delivers nothing itself: its OS
process's courier does. Any number of sweepers may run.
"""

from __future__ import annotations

from datetime import timedelta

from progressor import metrics
from progressor.config import EngineOptions
from progressor.node.node import Node
from progressor.services.service import PeriodicService


class OutboxSweeper(PeriodicService):
    """The service that looks at the outbox every `interval`, or when its next message is due."""

    name = "outbox sweeper"

    def __init__(self, node: Node, *, interval: timedelta) -> None:
        super().__init__(interval)
        self._node = node

    async def run_once(self) -> timedelta | None:
        """Look at the outbox once; return the time until a message is due, None if none is or will be."""
        waiting = await self._node.outbox.waiting()
        metrics.publish_outbox(waiting.messages, waiting.age)
        if waiting.due_in is None and waiting.hide_others:
            # One behind them may be due: the courier looks for it, which takes longer.
            self._node.courier.ring()
            return None
        if waiting.due_in is None or waiting.due_in > timedelta():
            return waiting.due_in
        self._node.courier.ring()
        return None

    async def stop(self) -> None:
        await super().stop()
        # A gauge that nobody updates any more must not keep its last value.
        metrics.publish_outbox(0, None)


def outbox_sweeper_on(node: Node, options: EngineOptions) -> OutboxSweeper:
    """Return a sweeper of the outbox."""
    return OutboxSweeper(node, interval=options.scan_interval)
