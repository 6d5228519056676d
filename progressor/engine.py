"""The composition root: workers, scanner, zombie collector and a client in one process.

Rule: things are built here and nowhere else, started from the ground up and stopped from the top down.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from progressor.backend import Backend
from progressor.config import EngineOptions
from progressor.engine_client import EngineClient
from progressor.errors import InvalidRequest
from progressor.heartbeat import Heartbeat
from progressor.loop_lag import LoopLag
from progressor.model import shown_id
from progressor.namespace import Namespace
from progressor.pool import Pool
from progressor.service import PeriodicService
from progressor.standalone import scanner, zombie_collector
from progressor.storage.beats import Beats
from progressor.storage.signals import Kind
from progressor.worker import Worker

log = logging.getLogger("progressor.engine")

# How much slower a worker scans for itself while a scanner does it.
_LAST_NET = 10


class Engine:
    """Serves namespaces: `async with Engine("postgresql://…", [billing]) as engine: …`.

    Further keywords are those of EngineOptions. `engine.client` runs its requests in this process where a
    slot is free. Leaving the block finishes what runs (within `stop_grace`) and hands back the rest.
    """

    def __init__(self, dsn: str, namespaces: Iterable[Namespace], **options: Any) -> None:
        self.options = EngineOptions(**options)
        self.namespaces = tuple(namespaces)
        names = [namespace.name for namespace in self.namespaces]
        if not names:
            raise InvalidRequest("an engine needs at least one namespace", field="namespaces")
        if len(set(names)) != len(names):
            raise InvalidRequest("two namespaces have the same name", field="namespaces")
        self._dsn = dsn

    def _build(self) -> None:
        options = self.options
        self.backend = backend = Backend(self._dsn, options)
        alone = not options.scanner and not options.signals
        poll = options.scan_interval / 3 if alone else options.scan_interval * _LAST_NET
        self.pools = {
            namespace.name: Pool(namespace, backend.storage, worker_id=backend.owner_id, poll_interval=poll)
            for namespace in self.namespaces
        }
        backend.ring = self._ring
        self.client = EngineClient(backend, self.namespaces, self.pools)
        beats = Beats(
            backend.dsn,
            worker_id=backend.owner_id,
            host=socket.gethostname(),
            namespaces=list(self.pools),
            silence=options.lease_age / 3,
            schema=options.database_schema,
        )
        self._heartbeat = Heartbeat(beats, interval=options.heartbeat_interval, free_slots=self._free_slots)
        self._loop_lag = LoopLag()
        self._services = self._build_services()

    def _build_services(self) -> list[PeriodicService]:
        services: list[PeriodicService] = []
        if self.options.scanner:
            services.append(scanner(self.backend, self.options, list(self.pools)))
        if self.options.zombie_collector:
            services.append(zombie_collector(self.backend, self.options))
        return services

    def _ring(self, namespace: str, kind: Kind) -> None:
        pool = self.pools.get(namespace)
        if pool is not None:
            pool.ring(kind)

    @property
    def busy(self) -> int:
        """How many chains of steps run."""
        return sum(pool.busy for pool in self.pools.values())

    def _free_slots(self) -> dict[str, int]:
        return {name: max(0, pool.free) for name, pool in self.pools.items()}

    async def __aenter__(self) -> Self:
        self._build()
        await self.backend.start()
        try:
            for namespace in self.namespaces:
                await self._register(namespace)
            await self._heartbeat.start()
            facts = self._facts | await self.backend.facts()
        except BaseException:
            await self.backend.stop()
            raise
        for namespace in self.namespaces:
            pool = self.pools[namespace.name]
            pool.start(
                Worker(
                    namespace,
                    self.backend.committed,
                    self.backend.reads,
                    self.backend.replies,
                    on_due=pool.expect,
                    limits=self.options,
                )
            )
        self._loop_lag.start()
        for service in self._services:
            service.start()
        log.info("engine started", extra=facts)
        return self

    @property
    def _facts(self) -> dict[str, object]:
        return {"worker_id": shown_id(self.backend.owner_id), "namespaces": list(self.pools)}

    async def _register(self, namespace: Namespace) -> None:
        options = namespace.options.model_dump(mode="json")
        options["raw"] = namespace.is_raw
        options["step_timeout"] = namespace.options.step_timeout.total_seconds()
        await self.backend.storage.execute(
            "register_namespace",
            name=namespace.name,
            options=json.dumps(options),
            schemas=json.dumps(namespace.schemas()),
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop claiming, finish what runs (bounded), hand back the rest, deregister."""
        for service in self._services:
            await service.stop()
        finished = await asyncio.gather(
            *(pool.stop(self.options.stop_grace) for pool in self.pools.values())
        )
        await self._loop_lag.stop()
        # Unfinished steps are left to the collectors: the worker's row ages with them.
        await self._heartbeat.stop(leave=all(finished))
        await self.backend.stop()
        log.info("engine stopped", extra=self._facts)
