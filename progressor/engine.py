"""The composition root: workers, scanner, zombie collector and a client in one process.

Rule: things are built here and nowhere else, started from the ground up and stopped from the top down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Self

from progressor.app.app import App, app_of
from progressor.app.lifespan import served
from progressor.app.middleware import layered
from progressor.app.resources import bind
from progressor.client.engine_client import EngineClient
from progressor.client.feed.positions import check_start
from progressor.config import EngineOptions
from progressor.errors import InvalidRequest
from progressor.handlers.namespace import Namespace
from progressor.handlers.running.made_tasks import contain_tasks_of
from progressor.handlers.running.waits import Lending
from progressor.handlers.schemas import storable_schemas
from progressor.loggers import Logger
from progressor.model import Task, TaskType, shown_id
from progressor.node.loop_lag import LoopLag
from progressor.node.node import Node
from progressor.node.witness import Witness
from progressor.schedules import ScheduleRuns, declare_all, schedules_of
from progressor.services.bulk_runner import bulk_runner_on
from progressor.services.fail_over import FailOver
from progressor.services.outbox_sweeper import outbox_sweeper_on
from progressor.services.retention_sweeper import retention_sweeper_on
from progressor.services.scanner import scanner_on
from progressor.services.service import PeriodicService
from progressor.services.subscription_monitor import SubscriptionMonitor
from progressor.services.zombie_collector import zombie_collector_on
from progressor.supervision import Background
from progressor.worker.connection_slots import ConnectionSlots, StepConnections
from progressor.worker.foreign_functions import ForeignFunctions
from progressor.worker.heartbeat import Heartbeat, heartbeat_on
from progressor.worker.pool import Pool
from progressor.worker.pools import Pools
from progressor.worker.result_budget import ResultBudget
from progressor.worker.worker import Worker

log = Logger("progressor.engine")

# Factors of scan_interval: how often a pool polls, as the last net behind a scanner, and where nobody can
# tell it that there is work.
_LAST_NET = 10
_WITHOUT_HINTS = 1 / 3
# Pools that start in one turn of the loop.
_AT_ONCE = 100


def _step_in(workers: Sequence[Worker], running: asyncio.Task[Any]) -> Task | None:
    """Return the step of these workers that runs in this asyncio task, if one does."""
    steps = (worker.deadlines.step_in(running) for worker in workers)
    return next((step for step in steps if step is not None), None)


class _EngineParts(NamedTuple):
    """The parts of an engine, built anew each time it is entered."""

    node: Node
    workers: Sequence[Worker]
    pools: Pools
    client: EngineClient
    heartbeat: Heartbeat
    loop_lag: LoopLag
    lending: Lending
    connection_slots: ConnectionSlots
    services: Sequence[PeriodicService]
    projecting: Background


class Engine:
    """Workers, services and a client in one OS process.

    `async with Engine("postgresql://…", [billing]) as engine:` serves the namespace `billing`. In place of
    namespaces it takes an App, whose lifespan it enters before it serves, and leaves after the last step.

    Further keywords are those of EngineOptions; InvalidRequest names a wrong one. Entering the block raises
    StorageUnavailable or SchemaMismatch if the database cannot be used, LifespanFailed if the lifespan
    raises, and InvalidRequest if it does not give all resources that handlers take. `engine.client` runs
    its requests in this process if a slot is free. Leaving the block hands back tasks that
    have not begun, and lets running steps finish for `stop_grace`, by default 30 s. Longer ones are given
    up: a zombie collector takes their tasks, and `on_zombie` decides what becomes of them.
    """

    _worker_type: type[Worker] = Worker
    _pool_type: type[Pool] = Pool

    def __init__(self, dsn: str, namespaces: App | Iterable[Namespace], **options: Any) -> None:
        self.options = EngineOptions(**options)
        self.app = app_of(namespaces)
        if not self.app.namespaces:
            raise InvalidRequest("an engine needs at least one namespace", field="namespaces")
        if self.app.lifespan is None:
            # Without a lifespan it is already known which resources are missing.
            bind(self.app.namespaces, {})
        for projection in self.app.projections:
            check_start("start", projection.start)
        self._schedules = schedules_of(self.app.namespaces)
        self.namespaces = (*self.app.namespaces, *([self._schedules] if self._schedules else []))
        self._dsn = dsn
        self._entered: _EngineParts | None = None
        # When each namespace was published, by PostgreSQL's clock.
        self._stated: dict[str, datetime] = {}
        # The connections and the lifespan.
        self._foundation = AsyncExitStack()

    async def _build(self, node: Node, pools: Pools, namespaces: Sequence[Namespace]) -> _EngineParts:
        options = self.options
        lending, budget = Lending(node.place, pools, pools.run_next), ResultBudget()
        workers: list[Worker] = []
        wires = {each.name: each.wire for each in namespaces}
        connection_slots = ConnectionSlots(node, options)
        for namespace in self._with_schedules(node, namespaces):
            worker = self._worker_type(
                namespace,
                layered(namespace, self.app.middleware),
                node.steps,
                node.reads,
                node.replies,
                lending=lending,
                budget=budget,
                connections=StepConnections(connection_slots),
                foreign=self._foreign(node, namespace),
                wires=wires,
                sent=node.courier.ring,
                fed=node.fed,
                groups=node.storage.enter_group,
                options=options,
            )
            workers.append(worker)
            pools.add(self._pool(node, worker, namespace, budget))
            # There may be thousands, and the connections live by this loop.
            await asyncio.sleep(0)
        witness = Witness(node.node_id, lease_age=options.lease_age)
        return _EngineParts(
            node,
            workers,
            pools,
            # It knows the pools that there are now.
            EngineClient(node, self.namespaces, pools),
            self._heartbeat(node, witness, pools),
            LoopLag(partial(_step_in, workers)),
            lending,
            connection_slots,
            self._services(node, witness, pools),
            Background(),
        )

    def _with_schedules(self, node: Node, namespaces: Sequence[Namespace]) -> Iterator[Namespace]:
        """Yield the namespaces, and that of the schedules which they declare, if they declare any."""
        yield from namespaces
        if self._schedules is not None:
            by_name = {each.name: each for each in namespaces}
            yield self._schedules.bound({"runs": ScheduleRuns(node, by_name)})

    def _made_node(self, pools: Pools) -> Node:
        return Node(self._dsn, self.options, ring=pools.ring)

    def _services(self, node: Node, witness: Witness, pools: Pools) -> Sequence[PeriodicService]:
        options = self.options
        services: list[PeriodicService] = [
            outbox_sweeper_on(node, options),
            FailOver(
                node, witness, pools, interval=options.heartbeat_interval, state_again=self._state_again
            ),
        ]
        if options.scanner:
            services += (scanner_on(node, options, list(pools)), SubscriptionMonitor(node))
        if options.zombie_collector:
            services += (
                zombie_collector_on(node, options, witness),
                bulk_runner_on(node, options),
                retention_sweeper_on(node, options),
            )
        return services

    def _foreign(self, node: Node, namespace: Namespace) -> ForeignFunctions:
        return ForeignFunctions(
            namespace,
            node.storage,
            worker_id=node.node_id,
            lease_age=self.options.lease_age,
            wake=node.wake_worker,
        )

    def _pool(self, node: Node, worker: Worker, namespace: Namespace, budget: ResultBudget) -> Pool:
        options = self.options
        return self._pool_type(
            namespace,
            node.storage,
            worker,
            worker_id=node.node_id,
            budget=budget,
            poll_interval=options.scan_interval * (_LAST_NET if options.signals else _WITHOUT_HINTS),
            fuse=options.fuse,
            hints=node.replies_behind,
            size=min(options.concurrency, namespace.options.concurrency),
        )

    def _heartbeat(self, node: Node, witness: Witness, pools: Pools) -> Heartbeat:
        return heartbeat_on(
            node,
            self.options,
            witness,
            namespaces={each.name: each.options.step_timeout for each in self.namespaces},
            functions={each.name: each.served() for each in self.namespaces},
            free_slots=pools.free_slots,
            performed=self._saved,
        )

    def _saved(self) -> dict[str, int]:
        counts = (worker.saved for worker in self._parts.workers)
        return dict(zip((each.name for each in self.namespaces), counts, strict=True))

    @property
    def _parts(self) -> _EngineParts:
        if self._entered is None:
            raise InvalidRequest(
                "the engine does not run: enter it, `async with Engine(...) as engine:`", field="engine"
            )
        return self._entered

    @property
    def client(self) -> EngineClient:
        """A client on the engine's own connections; InvalidRequest unless the engine is entered."""
        return self._parts.client

    @property
    def node(self) -> Node:
        """The engine's connections to the database, its signals and its id."""
        return self._parts.node

    @property
    def pools(self) -> Pools:
        """The pools of the namespaces, with their slots."""
        return self._parts.pools

    @property
    def busy(self) -> int:
        """The number of chains of steps that run."""
        return self.pools.busy

    @property
    def performed(self) -> int:
        """The number of handlers that have run since the engine was entered."""
        return sum(worker.performed for worker in self._parts.workers)

    async def __aenter__(self) -> Self:
        self._entered, pools = None, Pools()
        node = self._made_node(pools)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(node.stop)
            await node.connected()
            namespaces = await stack.enter_async_context(served(self.app))
            self._entered = await self._build(node, pools, namespaces)
            for namespace in self.namespaces:
                await self._state(namespace)
            facts = self._facts | await node.facts()
            await self._parts.heartbeat.start()
            self._foundation = stack.pop_all()
        try:
            await self._serve()
            await declare_all(self.client, self.app.namespaces)
        except BaseException:
            await self.stop()
            raise
        log.info("engine started", extra=facts)
        return self

    async def _serve(self) -> None:
        contain_tasks_of(asyncio.get_running_loop())
        for number, pool in enumerate(self.pools.values(), start=1):
            pool.start()
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        self._parts.connection_slots.show()
        self._parts.loop_lag.start()
        for service in self._parts.services:
            service.start()
        for projection in self.app.projections:
            self._parts.projecting.keep("projection", partial(self.client.project, projection))

    @property
    def _facts(self) -> dict[str, object]:
        return {"worker_id": shown_id(self.node.node_id), "namespaces": list(self.pools)}

    async def _state(self, namespace: Namespace, *, since: datetime | None = None) -> bool:
        """Publish what this engine says of a namespace; return whether it did.

        With `since`, when it last did: only if that is lost, and no worker has said anything later.
        """
        name, storage = namespace.name, self.node.storage
        before = await storage.namespace(name)
        if since is not None and before is not None and before.updated_at >= since:
            return False
        options = namespace.options.model_dump(mode="json")
        options["raw"] = namespace.is_raw
        options["has_repair"] = namespace.find(TaskType.REPAIR) is not None
        options["step_timeout"] = namespace.options.step_timeout.total_seconds()
        # Schemas only inform: one that cannot be stored is left out, and the namespace is still served.
        schemas, left_out = storable_schemas(namespace)
        if since is None and left_out:
            log.warning("schemas cannot be stored", extra={"namespace": name, "schemas": left_out})
        if since is None and before is not None:
            stored, stated = {**before.options, **before.schemas}, {**options, **schemas}
            await self._log_others(name, sorted(key for key in stated if stored.get(key) != stated[key]))
        at = await storage.register_namespace(name, options=options, schemas=schemas, since=since)
        if at is None:
            return False
        self._stated[name] = at
        if since is not None:
            log.warning("namespace lost in a fail-over, stated again", extra={"namespace": name})
        return True

    async def _log_others(self, name: str, differ: Sequence[str]) -> None:
        """Log what this engine states otherwise than the workers that serve the namespace now."""
        if differ and (others := await self.node.storage.live_workers(name, self.options.lease_age)):
            log.warning(
                "others serve the namespace in another version, what this worker states counts from now on",
                extra={"namespace": name, "workers": len(others), "differ": differ},
            )

    async def _state_again(self) -> None:
        """Publish anew what a server has lost of what this engine said of namespaces and schedules."""
        again = {
            each.name for each in self.namespaces if await self._state(each, since=self._stated[each.name])
        }
        await declare_all(self.client, [each for each in self.app.namespaces if each.name in again])

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop claiming, hand back what has not begun, let running steps finish, deregister.

        Steps that run longer than `stop_grace` are given up: a zombie collector takes their tasks.
        LifespanFailed if the lifespan raises then; the engine has stopped all the same.
        """
        try:
            await self._leave()
        finally:
            # Left last: a lifespan that hangs or raises leaves no row of a worker that is gone.
            await self._foundation.aclose()
        log.info("engine stopped", extra=self._facts)

    async def _leave(self) -> None:
        has_finished = False
        try:
            await self._parts.projecting.stop()
            for service in self._parts.services:
                await service.stop()
            pools_finished = await self.pools.stop(self.options.stop_grace)
            loans_finished = await self._parts.lending.stop()
            await self._parts.loop_lag.stop()
            await self._parts.connection_slots.transactions.close()
            has_finished = pools_finished and loans_finished
        finally:
            # Also if this is cancelled: a worker that beats on would be taken for one that runs steps.
            # Unfinished steps are left to the collectors: its row ages with them.
            await self._parts.heartbeat.stop(leave=has_finished)
