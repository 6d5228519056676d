"""A scanner or a zombie collector as a deployment of its own, without user code.

Rule: it knows the namespaces from the database alone, and serves all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from progressor.backend import Backend
from progressor.config import EngineOptions
from progressor.engine_client import EngineClient
from progressor.scanner import Scanner
from progressor.service import PeriodicService
from progressor.zombie_collector import ZombieCollector

log = logging.getLogger("progressor.standalone")

Build = Callable[[Backend, EngineOptions], PeriodicService]


def scanner(backend: Backend, options: EngineOptions, namespaces: Sequence[str] | None = None) -> Scanner:
    """A scanner of these namespaces, or of all."""
    return Scanner(
        backend.storage,
        interval=options.scan_interval,
        lease_age=options.lease_age,
        wake=backend.wake_worker,
        namespaces=namespaces,
    )


def zombie_collector(backend: Backend, options: EngineOptions) -> ZombieCollector:
    """A zombie collector of all namespaces."""
    return ZombieCollector(
        backend.storage,
        backend.replies,
        interval=options.zombie_interval,
        lease_age=options.lease_age,
        grace=options.zombie_grace,
    )


class Standalone:
    """Runs one service: `async with Standalone("postgresql://…", scanner): …`.

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
        self.service = self._make(self.backend, self.options)
        self.client = EngineClient(self.backend, (), {})

    async def __aenter__(self) -> Self:
        self._build()
        await self.backend.connected()
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
        await self.client.close()
        await self.backend.stop()
        log.info("service stopped", extra={"service": self.service.name})
