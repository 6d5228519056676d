"""The protocol of sinks, and the receiver that hands events to one.

Rule: a sink keeps no place. What it has accepted is known by the checkpoint of its subscription alone, so
after a crash it gets some events again: each has a position by which its receiver can tell them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from progressor.client.feed.forwarder import Receiver
from progressor.client.feed.slices import Checkpoint
from progressor.client.results import FeedEvent
from progressor.errors import NonRetryable
from progressor.node.node import Node


class Sink(Protocol):
    """A place to send events to. It is opened by the first `send`, and belongs to one event loop."""

    async def send(self, events: Sequence[FeedEvent]) -> None:
        """Send these, those of a process in their order; return once the other side has accepted all.

        Raise NonRetryable if it will never accept one of them, as it is too large, say. Any other error
        means that it cannot be reached now: all of them are sent again, not before the timedelta
        `retry_after` of the error if it has one.
        """

    async def close(self) -> None:
        """Let go of connections, within seconds."""


class SinkReceiver(Receiver):
    """The receiver of a sink: the checkpoint is committed once all is accepted."""

    kind = "event_sink"

    def __init__(self, node: Node, sink: Sink) -> None:
        self._node = node
        self._sink = sink

    async def deliver(self, events: Sequence[FeedEvent], to: Checkpoint) -> None:
        if events:
            await self._sink.send(events)
        await to.commit(self._node)

    def blames(self, error: Exception) -> bool:
        return isinstance(error, NonRetryable)
