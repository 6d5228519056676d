"""Reads of processes for a client: one with its history, its trace, pages of a search.

Rule: with a `room` in bytes a read returns as much as fits, and one entry at least; without one it returns
all that was asked for, read in parts that fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, get_args

from progressor.client.dispatch.dispatcher import Dispatcher, not_answered
from progressor.errors import HistoryTruncated, InvalidRequest, ProcessNotFound
from progressor.handlers.codec import RAW, Wire, json_object
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.inputs import check_count, check_moment, check_namespace, check_text, names_like
from progressor.model import LAST_ID, Event, HistoryRange, Metadata, ProcessStatus, Snapshot
from progressor.node.node import Node
from progressor.storage import MOST_ITEMS, ROOM, TaskRef, TaskRow, TimerFilter, TraceRange, Wanted


class Part(NamedTuple):
    """Tasks of a trace as they are stored, and a flag: the range has more."""

    rows: list[TaskRow]
    has_more: bool


class Reader:
    """The reads of one client."""

    def __init__(self, node: Node, dispatcher: Dispatcher, namespaces: Mapping[str, Namespace]) -> None:
        self._node = node
        self._dispatcher = dispatcher
        self._namespaces = namespaces

    async def wire_of(self, namespace: str) -> Wire:
        """Return the wire of a namespace: how its values are stored. Raise NamespaceNotFound."""
        return await self._dispatcher.wire_of(namespace)

    async def view(self, snapshot: Snapshot) -> Process[Any]:
        """Return a process that was read; its state is typed if the client was given the namespace."""
        known = self._namespaces.get(snapshot.namespace)
        if known is not None:
            return known.view(snapshot)
        wire = await self._dispatcher.wire_of(snapshot.namespace)
        return Process(snapshot, wire=RAW, shape=None) if wire is RAW else Process(snapshot, wire=wire)

    async def process(
        self,
        namespace: str,
        process_id: str,
        *,
        wanted: HistoryRange | None,
        seconds: float,
    ) -> Snapshot:
        """Return a process with a range of its history, once its init is over.

        Raise ProcessNotFound, ReplyTimeout if the init is not over within `seconds`, and StorageUnavailable
        if PostgreSQL does not answer within them.
        """
        check_namespace(namespace)
        check_text("process_id", process_id)
        if wanted is not None and not isinstance(wanted, HistoryRange):
            raise InvalidRequest("range must be a HistoryRange or None", field="range")
        snapshot: Snapshot | None = None
        try:
            async with asyncio.timeout(seconds):
                await self._node.connected()
                snapshot = await self._dispatcher.found(namespace, process_id)
                if snapshot.status is ProcessStatus.INIT:
                    snapshot = await self._dispatcher.initialised(snapshot)
                if wanted is None:
                    return snapshot
                return snapshot._replace(history=await self.events(snapshot, wanted))
        except TimeoutError:
            if snapshot is None or snapshot.status is not ProcessStatus.INIT:
                raise not_answered(seconds, self._node.storage.outage.cause) from None
            init = TaskRef(namespace, snapshot.process_no, 0)
            raise await self._dispatcher.no_reply(init, process_id) from None

    async def events(
        self, snapshot: Snapshot, wanted: HistoryRange, *, room: int | None = None
    ) -> tuple[Event, ...]:
        """Return a range of the history that a process had when it was read; raise HistoryTruncated."""
        reads, first, last = await self._node.reads(), snapshot.first_event_id, snapshot.last_event_id
        begin = wanted.offset + (1 if wanted.direction == "forward" else -1)
        if wanted.offset and begin < first > 1:
            raise HistoryTruncated(snapshot.namespace, snapshot.process_id, first_event_id=first)
        if room is None:
            return await reads.history(snapshot.life, wanted, last=last)
        return await reads.events(snapshot.life, wanted, last=last, room=room)

    async def trace(self, of: TraceRange, *, room: int | None = None) -> Part:
        """Return tasks of a process, in their order; raise ProcessNotFound if there is no such process."""
        check_namespace(of.namespace)
        check_text("process_id", of.process_id)
        for name in ("after", "before", "limit", "last"):
            if name == "after" or getattr(of, name) is not None:
                check_count(name, getattr(of, name), least=0, most=LAST_ID)
        if of.limit is not None and of.last is not None:
            raise InvalidRequest("give one of limit and last", field="last")
        await self._node.connected()
        part = Part(*await (await self._node.reads()).trace(of, room=room or ROOM))
        await self._dispatcher.check_namespace(of.namespace)
        if not part.rows and await (await self._node.reads()).process(of.namespace, of.process_id) is None:
            raise ProcessNotFound(of.namespace, of.process_id)
        while room is None and part.has_more and part.rows:
            part = await self._further(of, part.rows)
        return part

    async def _further(self, of: TraceRange, found: list[TaskRow]) -> Part:
        """Return the tasks that were found of a range, with the next part of it."""
        if of.last is None:
            limit = None if of.limit is None else of.limit - len(found)
            rest = of._replace(after=found[-1].task_id, limit=limit)
            rows, has_more = await (await self._node.reads()).trace(rest, room=ROOM)
            return Part(found + rows, has_more)
        rest = of._replace(before=found[0].task_id, last=of.last - len(found))
        rows, has_more = await (await self._node.reads()).trace(rest, room=ROOM)
        return Part(rows + found, has_more)

    async def search(
        self,
        *,
        namespace: str | None,
        namespaces: Sequence[str] | None,
        status: str | None,
        metadata: Metadata | None,
        timer: TimerFilter | None,
        created_after: datetime | None,
        created_before: datetime | None,
        limit: int,
        cursor: str | None,
        states: bool = True,
        room: int = ROOM,
    ) -> tuple[list[Snapshot], str | None]:
        """Return a page of processes, with their states or without, and the cursor of the next page."""
        if namespace is not None:
            check_namespace(namespace)
        if status is not None and status not in tuple(ProcessStatus):
            known = names_like(str(status), ProcessStatus)
            raise InvalidRequest(f"status must be one of {known}, not {status!r:.80}", field="status")
        if timer is not None and timer not in get_args(TimerFilter):
            raise InvalidRequest("timer must be none, overdue or held", field="timer")
        check_count("limit", limit, least=1, most=MOST_ITEMS)
        since = None if created_after is None else check_moment("created_after", created_after)
        until = None if created_before is None else check_moment("created_before", created_before)
        await self._node.connected()
        wanted = Wanted(
            namespace=namespace,
            namespaces=await self._node.storage.namespaces_fitting(namespaces),
            status=status,
            metadata=None if metadata is None else json_object(metadata, field="metadata"),
            created_after=since,
            created_before=until,
            timer=timer,
            states=states,
            room=room,
        )
        snapshots, following = await (await self._node.reads()).search(wanted, limit=limit, cursor=cursor)
        if not snapshots and namespace is not None:
            await self._dispatcher.check_namespace(namespace)
        return snapshots, following
