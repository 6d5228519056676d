"""A scanner or a zombie collector as a deployment of its own, without user code.

Rule: it knows the namespaces from the database alone, and serves all of them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, Self

from progressor.backend import Backend
from progressor.config import EngineOptions
from progressor.engine_client import EngineClient
from progressor.heartbeat import Heartbeat
from progressor.scanner import Scanner
from progressor.service import PeriodicService
from progressor.storage.beats import Beats
from progressor.witness import Witness
from progressor.zombie_collector import ZombieCollector

log = logging.getLogger("progressor.standalone")


class Apart(NamedTuple):
    """What a deployment of its own consists of."""

    service: PeriodicService
    heartbeat: Heartbeat | None = None


Build = Callable[[Backend, EngineOptions], Apart]


def scanner(backend: Backend, options: EngineOptions, namespaces: Sequence[str] | None = None) -> Scanner:
    """A scanner of these namespaces, or of all."""
    return Scanner(
        backend.storage,
        interval=options.scan_interval,
        lease_age=options.lease_age,
        wake=backend.wake_worker,
        namespaces=namespaces,
    )


def heartbeat(
    backend: Backend,
    options: EngineOptions,
    witness: Witness,
    *,
    namespaces: Mapping[str, timedelta],
    free_slots: Callable[[], Mapping[str, int]],
) -> Heartbeat:
    """The sign of life of this process, which serves these namespaces with these step_timeouts."""
    beats = Beats(
        backend.dsn,
        worker_id=backend.owner_id,
        host=socket.gethostname(),
        namespaces=namespaces,
        lease_age=options.lease_age,
        schema=options.database_schema,
        outage=backend.storage.outage,
        session_state=options.signals,
    )
    return Heartbeat(beats, interval=options.heartbeat_interval, free_slots=free_slots, witness=witness)


def zombie_collector(backend: Backend, options: EngineOptions, witness: Witness) -> ZombieCollector:
    """A zombie collector of all namespaces, judging by what `witness` has seen."""
    return ZombieCollector(
        backend.storage,
        backend.replies,
        witness,
        interval=options.zombie_interval,
        lease_age=options.lease_age,
        grace=options.zombie_grace,
    )


def scanner_apart(backend: Backend, options: EngineOptions) -> Apart:
    """A scanner of all namespaces."""
    return Apart(scanner(backend, options))


def zombie_collector_apart(backend: Backend, options: EngineOptions) -> Apart:
    """A zombie collector, and a row of its own in `workers` by which it sees that writes get through."""
    witness = Witness(backend.owner_id, lease_age=options.lease_age)
    own = heartbeat(backend, options, witness, namespaces={}, free_slots=dict)
    return Apart(zombie_collector(backend, options, witness), own)


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
        self.backend = Backend(self._dsn, self.options)
        self.service, self._heartbeat = self._make(self.backend, self.options)
        self.client = EngineClient(self.backend, (), {})

    async def __aenter__(self) -> Self:
        self._build()
        await self.backend.connected()
        if self._heartbeat is not None:
            try:
                await self._heartbeat.start()
            except BaseException:
                await self.backend.stop()
                raise
        self.service.start()
        log.info("service started", extra={"service": self.service.name} | await self.backend.facts())
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
        await self.backend.stop()
        log.info("service stopped", extra={"service": self.service.name})
