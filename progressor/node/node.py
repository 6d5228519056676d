"""The node: storage, reads, replies, signals and wakes of one OS process on one database.

Rule: it is built in one place, started and stopped in one order, and shared by everything in the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from progressor.acts import Act, AuditVerb, act_of
from progressor.archive.archive import Archive
from progressor.config import ConnectionOptions
from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.handlers.running.waits import calling_step
from progressor.node.courier import Courier
from progressor.node.lookout import Lookout
from progressor.node.replies import Replies
from progressor.node.wakes import Wakes
from progressor.node.watcher import Watcher
from progressor.release import VERSION
from progressor.storage import (
    Batcher,
    Browsing,
    Hints,
    Kind,
    Outbox,
    SessionPool,
    Signals,
    Step,
    StepTransactions,
    Storage,
    WatchReads,
    batch_steps,
    place_of,
    refuse_lent_sessions,
    refuse_other_server,
    schema_check,
    virtual_sessions,
    with_defaults,
)
from progressor.supervision import in_thread

if TYPE_CHECKING:
    from progressor.storage import Clock, Reads

B = TypeVar("B", bound=Batcher[Any, Any])


class Node:
    """One OS process on one database; `node_id` is random per start. `ring` is called for work here.

    With a `clock` it is in virtual time.
    """

    silence: Callable[[], float] = staticmethod(lambda: 0.0)
    """Return the seconds since the row of this worker was last renewed; 0 without one."""

    def __init__(
        self,
        dsn: str,
        options: ConnectionOptions,
        *,
        ring: Callable[[str, Kind], None],
        clock: Clock | None = None,
    ) -> None:
        self.dsn = with_defaults(dsn)
        self.options = options
        self.node_id = secrets.randbits(63)
        schema = options.database_schema
        self.place = (*place_of(dsn).values(), schema)
        self.clock = clock
        """The clock of virtual time; None: PostgreSQL's."""
        self._connections = SessionPool(
            self.dsn,
            limit=options.connections,
            schema=schema,
            session_state=options.session_state,
            **({} if clock is None else {"make": virtual_sessions(clock)}),
        )
        self.storage = Storage(self._connections, patience=options.patience)
        self._batchers: list[Batcher[Any, Any]] = []
        self.steps = self.stops(batch_steps(self.storage, self.replies_behind))
        self._reads: Reads | None = None
        poll = options.reply_poll_interval
        self.replies = Replies(self.storage, poll_interval=poll, announce=self._announce)
        self.ring = ring
        self.direct_dsn = _past_the_pooler(options)
        self.archive = None if options.archive is None else Archive(options.archive.get_secret_value())
        self.signals = self.replies.signals = self._made_signals() if options.signals else None
        self._wakes = Wakes(self.storage, self.signals, options.lease_age)
        self.outbox = Outbox(self._connections, patience=options.patience, outage=self.storage.outage)
        self.browsing = Browsing(self._connections, patience=options.patience, outage=self.storage.outage)
        self.courier = Courier(self.outbox, self._work_waits, self.wakes_behind)
        self.watcher = self._made_watcher()
        self.lookout = Lookout(self.storage)
        self.is_connected = False
        self._pid = 0
        self._closed = False
        # The event loop of the caller that connected first; all others must use it.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._context = contextvars.copy_context()

    def _made_signals(self) -> Signals:
        return Signals(
            self.storage,
            self.dsn,
            self.node_id,
            listens_at=self.direct_dsn,
            on_wake=self.ring,
            on_replies=self.replies.hint,
            on_gap=self.replies.look_at_all,
            on_follow=self.replies.followed,
            on_feed=self._feed_rings,
        )

    def _made_watcher(self) -> Watcher:
        patience, outage = self.options.patience, self.storage.outage
        return Watcher(WatchReads(self._connections, patience=patience, outage=outage))

    def act(self, verb: AuditVerb, *, reason: str | None = None) -> Act:
        """Return an act of this code, for the audit; a handler acts as its process."""
        step = calling_step()
        acts_as = None if step is None else f"{step.task.namespace}/{step.task.process_id}"
        return act_of(verb, default=self.options.actor, step=acts_as, reason=reason)

    @property
    def reply_to(self) -> int | None:
        """The id to which replies are hinted, for the requests of this process; None with signals off."""
        return None if self.signals is None else self.node_id

    async def reads(self) -> Reads:
        """Return the reads of this process; the first call imports SQLAlchemy, in a thread."""
        if self._reads is None:
            await in_thread("import", partial(import_module, "progressor.storage.queries.reads"))
        if self._reads is None:
            self._reads = self._made_reads()
            if self._closed:
                # This was stopped during the import, and closes nothing any more.
                await self._reads.close()
        return self._reads

    def _made_reads(self) -> Reads:
        from progressor.storage import Reads  # noqa: PLC0415 - imported by now; few need it

        return Reads(
            self.dsn,
            patience=self.options.patience,
            schema=self.options.database_schema,
            session_state=self.options.session_state,
            outage=self.storage.outage,
            clock=self.clock,
        )

    def step_transactions(self, limit: int) -> StepTransactions:
        """Return the transactions of handlers that run SQL of their own: so many connections at most."""
        return StepTransactions(
            self.dsn,
            self.storage,
            limit=limit,
            schema=self.options.database_schema,
            session_state=self.options.session_state,
            clock=self.clock,
        )

    async def connected(self) -> Storage:
        """Connect, or wait while another caller connects; return the storage once connected.

        A failure is raised to all callers that wait; the next call tries again. InvalidRequest on another
        event loop than the first caller's, or without one.
        """
        loop = running_loop()
        if self._loop is not loop or not self.is_connected:
            await self._connected_on(loop)
        return self.storage

    async def _connected_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._closed:
            raise _closed()
        self._refuse_other_loops(loop)
        if self._connecting is None or self._connecting.done():
            self._loop = loop
            context = self._context.copy()
            self._connecting = loop.create_task(self._connect(), name="progressor connect", context=context)
            self._connecting.add_done_callback(_take_note)
        connecting = self._connecting
        # `asyncio.wait`, not the task itself: a caller that is cancelled must not cancel it for the others.
        await asyncio.wait((connecting,))
        if connecting.cancelled():
            raise _closed()
        connecting.result()

    async def _connect(self) -> None:
        """Check schema and pooler, then start replies and signals."""
        try:
            try:
                await self._check()
            except StorageUnavailable as error:
                # A connection may have been lost amid the check: try once more. If the server is away, that
                # fails too.
                if error.is_denied:
                    raise
                await self._check()
        except BaseException:
            self._loop = None
            raise
        self.replies.start()
        if self.signals is not None:
            await self.signals.start()
        self.is_connected = True
        self._pid = os.getpid()

    async def _check(self) -> None:
        """Check what this relies on.

        SchemaMismatch if the schema does not fit this release, InvalidRequest if signals are on and a
        pooler lends out sessions, StorageUnavailable if the URL past a pooler leads to another database.
        """
        schema, met = self.options.database_schema, self._connections.servers
        look = partial(schema_check.check, self.dsn, schema=schema, met=met)
        await in_thread("look at the schema", look)
        if self.signals is not None:
            await refuse_lent_sessions(self.dsn, self.direct_dsn)
        if self.direct_dsn is not None:
            await refuse_other_server(self.dsn, self.direct_dsn)

    def _refuse_other_loops(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and self._loop is not loop:
            raise InvalidRequest(
                "this client belongs to the event loop of its first request: make one for each loop, "
                "or use SyncClient, which all threads may share",
                field="client",
            )

    async def facts(self) -> dict[str, object]:
        """Return the fields of a log's first line: this release, and the server and its place."""
        return {"version": VERSION, **await self.storage.server()}

    @property
    def is_closed(self) -> bool:
        """Return whether it was stopped: nothing of it works any more."""
        return self._closed

    @property
    def is_left_open(self) -> bool:
        """Return whether this OS process, and not its parent, has connected it and not stopped it."""
        return self.is_connected and self._pid == os.getpid()

    async def stop(self) -> None:
        """Close everything, for good; what was committed stays committed."""
        loop = running_loop()
        is_lost = self._loop is not None and self._loop.is_closed()
        if not is_lost:
            self._refuse_other_loops(loop)
        self._closed = True
        self.is_connected = False
        if is_lost:
            # What ran there has ended with it, and connections end with this object.
            return
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        # First the batchers of requests, then that of steps: what they still start finds the rest in
        # place.
        for batcher in reversed(self._batchers):
            await batcher.stop()
        await self.courier.stop()
        await self._wakes.stop()
        await self.watcher.stop()
        await self.lookout.stop()
        await self.replies.stop()
        if self.signals is not None:
            await self.signals.stop()
        await self._connections.close()
        if self._reads is not None:
            await self._reads.close()

    @property
    def is_idle(self) -> bool:
        """Return whether no request, result of a step or message is on its way to PostgreSQL."""
        return self.courier.is_idle and all(batcher.is_idle for batcher in self._batchers)

    async def idle(self) -> None:
        """Wait until no request, result of a step or message is on its way to PostgreSQL."""
        while not self.is_idle:
            await self.courier.idle()
            for batcher in self._batchers:
                await batcher.idle()

    def stops(self, batcher: B) -> B:
        """Have this batcher stopped with the node; return it."""
        self._batchers.append(batcher)
        return batcher

    def wake(self, namespace: str, kind: Kind = "calls") -> None:
        """Wake one worker of a namespace in which a call waits or a timer is due."""
        self._wakes.wake(namespace, kind)

    def wakes_behind(
        self, namespaces: Collection[str], kind: Kind = "calls"
    ) -> tuple[Hints | None, Collection[str]]:
        """Return the hints that wake a worker for each namespace; and those of which a worker is known."""
        if self.signals is None or not namespaces:
            return None, ()
        chosen = self._wakes.choose(namespaces)
        return (self.signals.wakes_behind(chosen, kind) if chosen else None), chosen

    def replies_behind(self, steps: Sequence[Step]) -> Hints | None:
        """Return the hints to other processes that these steps have ended; None if there are none."""
        return None if self.signals is None else self.signals.replies_behind(step.task for step in steps)

    def _work_waits(self, namespace: str, woken: Collection[str]) -> None:
        self.ring(namespace, "calls")
        if namespace not in woken:
            self.wake(namespace, "calls")

    def wake_worker(self, worker_id: int, namespace: str, kind: Kind) -> None:
        """Wake one worker, which may be this process."""
        if worker_id == self.node_id:
            self.ring(namespace, kind)
        elif self.signals is not None:
            self.signals.wake(worker_id, namespace, kind)

    async def wake_workers(self, namespace: str, *kinds: Kind) -> None:
        """Wake all workers of a namespace; their scanners would find the work too."""
        for worker in await self.storage.live_workers(namespace, self.options.lease_age):
            for kind in kinds:
                self.wake_worker(worker.worker_id, namespace, kind)

    def fed(self) -> None:
        """Hint to all readers of the feed that it goes on."""
        if self.signals is not None:
            self.signals.fed()

    def follow_feed(self) -> None:
        """Have readers of the feed woken by hints from now on."""
        if self.signals is not None:
            self.signals.follow_feed()

    def _feed_rings(self) -> None:
        self.lookout.ring()
        self.watcher.ring()

    def _announce(self, node_id: int, namespace: str, task_id: int) -> None:
        if self.signals is not None and node_id != self.node_id:
            self.signals.reply(node_id, namespace, task_id)


def _past_the_pooler(options: ConnectionOptions) -> str | None:
    """Return the DSN that leads past a pooler, if one is stated."""
    url = options.listen_database_url
    return None if url is None else with_defaults(url.get_secret_value(), field="listen_database_url")


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop on which this code runs; InvalidRequest without one, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidRequest(
            "clients and engines run on an event loop of asyncio, and none runs here: use asyncio.run, the "
            "asyncio backend of anyio, or SyncClient, which needs no loop",
            field="client",
        ) from None


def _take_note(connecting: asyncio.Task[None]) -> None:
    """Retrieve an error, so that asyncio does not log it if every caller has given up."""
    if not connecting.cancelled():
        connecting.exception()


def _closed() -> StorageUnavailable:
    return StorageUnavailable("the client is closed")
