"""The client: starts, calls, repairs, reads and removes processes, from anywhere, without handlers.

Rule: bad input is refused before anything is written, by an error that names the field.
"""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Iterable, Sequence, Sized
from datetime import datetime
from typing import Any, Literal, ParamSpec, Self, TypeVar

from progressor.acts import AuditVerb
from progressor.app.app import App, app_of
from progressor.client.admin import AdminMethods
from progressor.client.asks import Timeout
from progressor.client.bulk_repairs import BulkRepairing
from progressor.client.dispatch.dispatcher import Dispatcher, namespace_not_found
from progressor.client.feed.administration import SubscriptionAdmin
from progressor.client.feed.following import Following
from progressor.client.feed.reading import FeedReadings
from progressor.client.handle import ProcessClient, ProcessHandle
from progressor.client.reader import Reader
from progressor.client.results import Fault, Health, Page, TraceEntry
from progressor.client.system import SystemReader
from progressor.client.tokens import Tokens
from progressor.client.transfers.put import import_of
from progressor.client.transfers.removing import Removing
from progressor.client.transfers.whole import Transferring
from progressor.client.watches.process_watch import Watches
from progressor.client.watches.watching import Watching
from progressor.codecs.codec import Codec, PlacedCodec
from progressor.config import ConnectionOptions
from progressor.errors import (
    ProcessAlreadyExists,
    ProgressorError,
    SchemaMismatch,
    StorageUnavailable,
    process_not_found,
)
from progressor.handlers.codec import Wire
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process, StateT
from progressor.inputs import HistoryRange, check_namespace, check_text
from progressor.model import Metadata
from progressor.monitoring import Mailbox
from progressor.node.node import Node
from progressor.storage import TraceRange
from progressor.supervision import in_thread
from progressor.timers import TimerChange
from progressor.worker.pools import Pools

_SHORT_HISTORY = 1000
# Seconds for which nothing can be saved until that is a fault: longer than a fail-over's last failures.
_UNSAVED = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class Client(
    Watching,
    Removing,
    ProcessClient,
    AdminMethods,
    BulkRepairing,
    Following,
    SubscriptionAdmin,
    Transferring,
):
    """The processes of one database: `async with Client("postgresql://…") as client: …`.

    A client connects when it is entered, or else at its first request, on the event loop of that request;
    `close` ends it. Further keywords are those of ConnectionOptions. `namespaces` gives `get` the types of
    states; `codec` must be the one that the namespaces of other processes use.

    `timeout` is a timedelta or seconds, above 0 and at most ten years; None means `reply_timeout` (60 s by
    default). A method without it repeats each operation for at most `patience` (30 s by default).

    Every method that asks the database raises InvalidRequest for bad input or on another event loop,
    StorageUnavailable if PostgreSQL cannot be reached or refuses the role, or the client is closed,
    SchemaMismatch if this release cannot use the database, and NamespaceNotFound for a namespace that is
    not known in it. `health` raises none of them.
    """

    _dispatcher: Dispatcher

    def __init__(
        self,
        dsn: str,
        namespaces: App | Iterable[Namespace] = (),
        *,
        codec: Codec | PlacedCodec | None = None,
        **options: Any,
    ) -> None:
        pools = Pools()
        node = Node(dsn, ConnectionOptions(**options), ring=pools.ring)
        self._attach(node, namespaces, codec, pools=pools)

    def _attach(
        self,
        node: Node,
        namespaces: App | Iterable[Namespace],
        codec: Codec | PlacedCodec | None,
        *,
        pools: Pools,
    ) -> None:
        self._node = node
        self._namespaces = {each.name: each for each in app_of(namespaces).namespaces}
        self._dispatcher = Dispatcher(node, self._namespaces, Wire(codec), pools)
        self.tokens = Tokens(node)
        self.reader = Reader(node, self._dispatcher, self._namespaces)
        self.system = SystemReader(node)
        self.watches = Watches(node, self._dispatcher, self.reader)
        self.readings = FeedReadings(node, self._dispatcher)

    async def __aenter__(self) -> Self:
        try:
            await self._node.connected()
        except asyncio.CancelledError:
            # Without an __aenter__ that returns there is no __aexit__: close here.
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, for good; requests that were accepted go on.

        Raise InvalidRequest on another event loop than the client's, unless that one is closed.
        """
        await self._node.stop()

    def __del__(self) -> None:
        node = getattr(self, "_node", None)
        if node is not None and node.is_left_open:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)

    def process(self, namespace: Namespace[StateT] | str, process_id: str) -> ProcessHandle[StateT]:
        """Return a handle on one process, whose methods lack the first two arguments.

        With a Namespace in place of its name, `get` returns a state of the declared type.

        Raise InvalidRequest if these two break a rule; ask nothing of the database.
        """
        return ProcessHandle(self, namespace, process_id)

    async def get(
        self,
        namespace: str,
        process_id: str,
        *,
        range: HistoryRange | None = HistoryRange(),  # noqa: A002, B008 - pinned name; frozen
        timeout: Timeout = None,
    ) -> Process[Any]:
        """Return a process with a range of its history (`range=None`: none); wait for a running init.

        Raise ProcessNotFound if there is none, ReplyTimeout if its init takes longer than `timeout`,
        StorageUnavailable if PostgreSQL does, and CallCycle if a handler would wait for itself.
        """
        seconds = self._dispatcher.seconds(timeout)
        snapshot = await self.reader.process(namespace, process_id, wanted=range, seconds=seconds)
        return await self.reader.view(snapshot)

    async def put(
        self,
        namespace: str,
        process_id: str,
        *,
        state: Any = None,
        events: Sequence[Any] = (),
        action: TimerChange | Sequence[TimerChange] | None = None,
        metadata: Metadata | None = None,
        status: Literal["running", "error"] = "running",
    ) -> None:
        """Import a process as it is, with its history (dicts or models, numbered from 1) and timers.

        Raise ProcessAlreadyExists if the id is taken, and InvalidRequest for a value that cannot be put.
        """
        check_namespace(namespace)
        check_text("process_id", process_id)
        storage = await self._node.connected()
        await self._dispatcher.check_namespace(namespace)
        make = functools.partial(
            import_of,
            namespace,
            process_id,
            options=self._node.options,
            wire=await self._dispatcher.wire_of(namespace),
            state=state,
            events=events,
            action=action,
            metadata=metadata,
            status=status,
        )
        # A long history is encoded in a thread, so that others are answered in the meantime.
        is_long = isinstance(events, Sized) and len(events) > _SHORT_HISTORY
        item = await in_thread("put", make) if is_long else make()
        is_put = await storage.put(item, act=self._node.act(AuditVerb.PUT))
        if is_put is None:
            self._dispatcher.forget_namespace(namespace)
            raise await namespace_not_found(self._node, namespace)
        if not is_put:
            raise ProcessAlreadyExists(namespace, process_id)
        if item.timers and item.status == "running":
            self._node.ring(namespace, "timers")

    async def trace(
        self,
        namespace: str,
        process_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[TraceEntry]:
        """Return the tasks of a process in order, behind id `after`: all, the first `limit`, or the `last`.

        Raise ProcessNotFound if there is no such process, and InvalidRequest for both `limit` and `last`.
        """
        of = TraceRange(namespace, process_id, after, None, limit, last)
        part = await self.reader.trace(of)
        wire = await self._dispatcher.wire_of(namespace)
        return [TraceEntry.of(row, wire, of) for row in part.rows]

    async def mailbox(self, namespace: str, process_id: str) -> Mailbox:
        """Return how many requests wait on a process, for how long, and when they will be through.

        Raise ProcessNotFound if there is no such process.
        """
        check_namespace(namespace)
        check_text("process_id", process_id)
        storage = await self._node.connected()
        found = await storage.mailbox(namespace, process_id)
        if found is None:
            await self._dispatcher.check_namespace(namespace)
            raise process_not_found(namespace, process_id)
        return found

    async def search(
        self,
        *,
        namespace: str | None = None,
        namespaces: Sequence[str] | None = None,
        status: str | None = None,
        metadata: Metadata | None = None,
        timer: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of processes, by namespace, then creation.

        `metadata` matches processes whose metadata contain all of it. `namespaces` are patterns, in which *
        stands for any characters; processes of other namespaces are not found. `timer="overdue"` and
        `"held"` find processes with such a timer, the overdue ones by namespace, then due time. `"none"`
        finds processes without a timer; any other text those that have the timer of this name, `"default"`
        the one without a name. Pages of these may be short, or empty, before the end.

        Raise NamespaceNotFound if `namespace` is not known, and InvalidRequest for a bad filter or cursor.
        """
        snapshots, following = await self.reader.search(
            namespace=namespace,
            namespaces=namespaces,
            status=status,
            metadata=metadata,
            timer=timer,
            created_after=created_after,
            created_before=created_before,
            limit=limit,
            cursor=cursor,
        )
        return Page([await self.reader.view(snapshot) for snapshot in snapshots], following)

    async def health(self) -> Health:
        """Return whether the database answers with the right schema, and who serves what; raise no error.

        If it does not, `detail` has the text of the error. Nor is it ok if this OS process has tried to
        save something for ten seconds, and nothing was saved: a full disk, a table that is locked. Nor if
        the heartbeat of its worker is half a lease old.
        """
        try:
            storage = await self._node.connected()
            serving = await storage.health(self._node.options.lease_age)
        except ProgressorError as error:
            is_of_database = isinstance(error, StorageUnavailable | SchemaMismatch)
            fault: Fault | None = "database" if is_of_database and not self._node.is_closed else None
            lasts = round(self._node.storage.outage.seconds, 1) or None
            return Health(False, str(error), 0, (), fault=fault, fault_seconds=lasts)
        outage = storage.outage
        if outage.is_partial and outage.seconds > _UNSAVED:
            seconds = round(outage.seconds, 1)
            detail = (
                f"PostgreSQL answers, but has saved nothing, or little, for {seconds:g} s: {outage.cause}"
            )
            return Health(False, detail, *serving, fault="database", fault_seconds=seconds)
        silence, lease = self._node.silence(), self._node.options.lease_age.total_seconds()
        if silence > lease / 2:
            silence = round(silence, 1)
            detail = (
                f"PostgreSQL answers, but the heartbeat of this worker was last saved {silence:g} s ago: "
                f"others take its tasks after {lease:g} s"
            )
            return Health(False, detail, *serving, fault="database", fault_seconds=silence)
        return Health(True, None, *serving)
