"""A scanner or a zombie collector as a deployment of its own, without user code.

Rule: it reads the namespaces from the database, and serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self

from progressor.client.engine_client import EngineClient
from progressor.config import EngineOptions
from progressor.errors import InvalidRequest
from progressor.loggers import Logger
from progressor.node.node import Node
from progressor.node.witness import Witness
from progressor.services.bulk_runner import bulk_runner_on
from progressor.services.outbox_sweeper import outbox_sweeper_on
from progressor.services.retention_sweeper import retention_sweeper_on
from progressor.services.scanner import scanner_on
from progressor.services.service import PeriodicService
from progressor.services.subscription_monitor import SubscriptionMonitor
from progressor.services.zombie_collector import zombie_collector_on
from progressor.worker.heartbeat import Heartbeat, heartbeat_on
from progressor.worker.pools import Pools

log = Logger("progressor.standalone")


class Started(Protocol):
    """A service that runs by itself between its start and its stop."""

    name: str

    def start(self) -> None:
        """Begin; errors from here on are logged."""

    async def stop(self) -> None:
        """End, within seconds."""


class Apart(NamedTuple):
    """A service, with its heartbeat if it has one, and the services beside it."""

    service: Started
    heartbeat: Heartbeat | None = None
    beside: Sequence[PeriodicService] = ()


Build = Callable[[Node, EngineOptions], Apart]


def scanner_apart(node: Node, options: EngineOptions) -> Apart:
    """Return a scanner of all namespaces; an outbox sweeper and a subscription monitor run beside it."""
    beside = [outbox_sweeper_on(node, options), SubscriptionMonitor(node)]
    return Apart(scanner_on(node, options), beside=beside)


def zombie_collector_apart(node: Node, options: EngineOptions) -> Apart:
    """Return a zombie collector, with a heartbeat by which it sees that writes get through.

    A bulk runner and a retention sweeper run beside it.
    """
    witness = Witness(node.node_id, lease_age=options.lease_age)
    own = heartbeat_on(node, options, witness, namespaces={}, free_slots=dict, performed=dict)
    beside = [bulk_runner_on(node, options), retention_sweeper_on(node, options)]
    return Apart(zombie_collector_on(node, options, witness), own, beside)


def retention_sweeper_apart(node: Node, options: EngineOptions) -> Apart:
    """Return a retention sweeper alone."""
    return Apart(retention_sweeper_on(node, options))


class _ServiceParts(NamedTuple):
    """The parts of a running service, built anew each time it is entered."""

    node: Node
    client: EngineClient
    apart: Apart


class Standalone:
    """A service without an engine: `async with Standalone("postgresql://…", scanner_apart): …`.

    Further keywords are those of EngineOptions.
    """

    def __init__(self, dsn: str, build: Build, **options: Any) -> None:
        self.options = EngineOptions(**options)
        self._dsn = dsn
        self._make = build
        self._entered: _ServiceParts | None = None

    def _build(self) -> _ServiceParts:
        pools = Pools()
        node = Node(self._dsn, self.options, ring=pools.ring)
        return _ServiceParts(node, EngineClient(node, (), pools), self._make(node, self.options))

    @property
    def _parts(self) -> _ServiceParts:
        if self._entered is None:
            raise InvalidRequest(
                "the service does not run: enter it, `async with Standalone(...) as service:`",
                field="service",
            )
        return self._entered

    @property
    def client(self) -> EngineClient:
        """A client on the service's database; InvalidRequest unless the service is entered."""
        return self._parts.client

    @property
    def busy(self) -> int:
        """The number of steps that run: always 0."""
        return 0

    async def __aenter__(self) -> Self:
        node, _, (service, heartbeat, beside) = self._entered = self._build()
        try:
            await node.connected()
            facts = {"service": service.name} | await node.facts()
            if heartbeat is not None:
                await heartbeat.start()
        except BaseException:
            await node.stop()
            raise
        for each in (service, *beside):
            each.start()
        log.info("service started", extra=facts)
        return self

    async def __aexit__(self, *_error: object) -> None:
        node, _, (service, heartbeat, beside) = self._parts
        try:
            for each in (service, *beside):
                await each.stop()
        finally:
            # Also if this is cancelled: one that beats on would be taken for alive.
            if heartbeat is not None:
                await heartbeat.stop(leave=True)
            await node.stop()
        log.info("service stopped", extra={"service": service.name})
