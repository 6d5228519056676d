"""A scanner or a zombie collector as a deployment of its own, without user code.

Rule: it knows the namespaces from the database alone, and serves all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from progressor.client.engine_client import EngineClient
from progressor.config import EngineOptions
from progressor.node.node import Node
from progressor.node.witness import Witness
from progressor.services.scanner import scanner_on
from progressor.services.service import PeriodicService
from progressor.services.zombie_collector import zombie_collector_on
from progressor.worker.heartbeat import Heartbeat, heartbeat_on
from progressor.worker.pools import Pools

log = logging.getLogger("progressor.standalone")


class Apart(NamedTuple):
    """What a deployment of its own consists of."""

    service: PeriodicService
    heartbeat: Heartbeat | None = None


Build = Callable[[Node, EngineOptions], Apart]


def scanner_apart(node: Node, options: EngineOptions) -> Apart:
    """A scanner of all namespaces."""
    return Apart(scanner_on(node, options))


def zombie_collector_apart(node: Node, options: EngineOptions) -> Apart:
    """A zombie collector, and a row of its own in `workers` by which it sees that writes get through."""
    witness = Witness(node.node_id, lease_age=options.lease_age)
    own = heartbeat_on(node, options, witness, namespaces={}, free_slots=dict)
    return Apart(zombie_collector_on(node, options, witness), own)


class Standalone:
    """Runs one service: `async with Standalone("postgresql://…", scanner_apart): …`.

    Further keywords are those of EngineOptions. `client` asks about the same database.
    """

    def __init__(self, dsn: str, build: Build, **options: Any) -> None:
        self.options = EngineOptions(**options)
        self._dsn = dsn
        self._make = build

    @property
    def busy(self) -> int:
        """How many steps run: none ever."""
        return 0

    def _build(self) -> None:
        pools = Pools()
        self.node = Node(self._dsn, self.options, ring=pools.ring)
        self.service, self._heartbeat = self._make(self.node, self.options)
        self.client = EngineClient(self.node, (), pools)

    async def __aenter__(self) -> Self:
        self._build()
        await self.node.connected()
        if self._heartbeat is not None:
            try:
                await self._heartbeat.start()
            except BaseException:
                await self.node.stop()
                raise
        self.service.start()
        log.info("service started", extra={"service": self.service.name} | await self.node.facts())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.service.stop()
        if self._heartbeat is not None:
            await self._heartbeat.stop(leave=True)
        await self.client.close()
        await self.node.stop()
        log.info("service stopped", extra={"service": self.service.name})
