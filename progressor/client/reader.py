"""Reads of processes for a client: one with its history, its trace, pages of a search.

Rule: with a `room` in bytes a read returns as much as fits, and one entry at least; without one it returns
all that was asked for, read in parts that fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

from progressor.bulks import BulkPreview
from progressor.client.dispatch.dispatcher import Dispatcher, namespace_not_found
from progressor.client.dispatch.unanswered import not_answered
from progressor.codecs.codec import ANY_PROCESS, ValuePlace
from progressor.errors import HistoryTruncated, InvalidRequest, process_not_found
from progressor.handlers.codec import RAW, Wire, json_object
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.inputs import (
    LAST_ID,
    HistoryRange,
    all_names_like,
    check_bulk_filter,
    check_count,
    check_moment,
    check_namespace,
    check_since,
    check_text,
    check_timer_filter,
)
from progressor.model import Event, Metadata, ProcessStatus, Snapshot
from progressor.monitoring import Failed, LoadSample
from progressor.node.node import Node
from progressor.storage import (
    MOST_FAILED,
    MOST_ITEMS,
    ROOM,
    TaskHold,
    TaskRef,
    TaskRow,
    TraceRange,
    UndeliveredMessage,
    Wanted,
)

# Processes that a look reads before it asks how rare their metadata are; so many are rare.
_FIRST_LOOKS, _RARE = 1000, 5000
# Failures that are looked at in each namespace, however many namespaces there are.
_FEWEST_FAILED = 50
# Most timers that a look reads have never failed.
_COST_OF_A_TIMER = 5


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

    async def standing(self, namespace: str, process_id: str) -> Snapshot:
        """Return a process as it is, also while its init runs; raise ProcessNotFound."""
        check_namespace(namespace)
        check_text("process_id", process_id)
        await self._node.connected()
        return await self._dispatcher.found(namespace, process_id)

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
        if wanted is not None and not isinstance(wanted, HistoryRange):
            raise InvalidRequest("range must be a HistoryRange or None", field="range")
        snapshot: Snapshot | None = None
        try:
            async with asyncio.timeout(seconds):
                snapshot = await self.standing(namespace, process_id)
                if snapshot.status is ProcessStatus.INIT:
                    snapshot = await self._dispatcher.initialised(snapshot)
                if wanted is None:
                    return snapshot
                return await self.with_history(snapshot, wanted)
        except TimeoutError:
            if snapshot is None or snapshot.status is not ProcessStatus.INIT:
                raise not_answered(seconds, self._node.storage.outage.cause) from None
            init = TaskRef(namespace, snapshot.process_no, 0)
            raise await self._dispatcher.no_reply(init, process_id) from None

    async def with_history(
        self, snapshot: Snapshot, wanted: HistoryRange, *, room: int | None = None
    ) -> Snapshot:
        """Return a process with a range of the history it had when it was read, archived events included.

        What a retention deletes between the two reads is gone from both: `first_event_id` says so. Raise
        HistoryTruncated if the range begins below the first event that is left anywhere.
        """
        while True:
            found = await self._from_both(snapshot, wanted, room)
            if _is_whole(found, wanted, snapshot, room):
                return snapshot._replace(history=found)
            # What a retention deletes meanwhile is in the archive by now.
            now = await (await self._node.reads()).process(snapshot.namespace, snapshot.process_id)
            if now is None or now.life != snapshot.life or now.first_event_id <= snapshot.first_event_id:
                return snapshot._replace(history=found)
            snapshot = snapshot._replace(first_event_id=now.first_event_id)

    async def _from_both(
        self, snapshot: Snapshot, wanted: HistoryRange, room: int | None
    ) -> tuple[Event, ...]:
        """Return a range of the history from the archive and the database, read one after the other."""
        first, is_forward = snapshot.first_event_id, wanted.direction == "forward"
        if is_forward and wanted.offset >= first - 1:
            return await self.left(snapshot, wanted, room)
        newer = () if is_forward else await self.left(snapshot, wanted, room)
        rest = _rest(wanted, newer)
        if first == 1 or rest.limit == 0 or (newer and newer[-1].event_id > first):
            return newer
        older = await self._archived(snapshot)
        known = older[0].event_id if older else first
        if wanted.offset and wanted.offset + (1 if is_forward else -1) < known > 1:
            raise HistoryTruncated(snapshot.namespace, snapshot.process_id, first_event_id=known)
        if not is_forward:
            below = [each for each in older[::-1] if not wanted.offset or each.event_id < wanted.offset]
            return (*newer, *_first_of(below, rest.limit, room))
        found = _first_of([each for each in older if each.event_id > wanted.offset], wanted.limit, room)
        is_all = not found or found[-1].event_id == first - 1
        return (*found, *await self.left(snapshot, _rest(wanted, found), room)) if is_all else found

    async def left(self, snapshot: Snapshot, wanted: HistoryRange, room: int | None) -> tuple[Event, ...]:
        """Return a range of the events that stand in the database; no archive is read."""
        reads, last = await self._node.reads(), snapshot.last_event_id
        if room is None:
            return await reads.history(snapshot.life, wanted, last=last)
        return await reads.events(snapshot.life, wanted, last=last, room=room)

    async def _archived(self, snapshot: Snapshot) -> list[Event]:
        """Return the archived events up to the first that is left, without a gap before it."""
        archive = self._node.archive
        if archive is None:
            return []
        found = await archive.events(snapshot.namespace, snapshot.process_id, snapshot.created_at)
        older = {each.event_id: each for each in found if each.event_id < snapshot.first_event_id}
        first = snapshot.first_event_id
        while first - 1 in older:
            first -= 1
        return [older[event_id] for event_id in range(first, snapshot.first_event_id)]

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
            raise process_not_found(of.namespace, of.process_id)
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

    async def undelivered(self, snapshot: Snapshot, *, limit: int) -> list[UndeliveredMessage]:
        """Return up to `limit` messages that a process has sent and that are not delivered yet."""
        return await self._node.outbox.undelivered(snapshot.process_no, limit=limit)

    async def task_hold(self, task: TaskRef) -> TaskHold | None:
        """Return what holds a task that has no answer yet; None if its namespace is not known."""
        return await self._node.storage.task_hold(task)

    async def namespace_names(self) -> list[str]:
        """Return every namespace that any worker ever served, by name."""
        storage = await self._node.connected()
        return await storage.namespace_names()

    async def samples(self, namespaces: Sequence[str], *, within: timedelta) -> list[LoadSample]:
        """Return the load of these namespaces together, a sample for each minute of this time up to now."""
        storage = await self._node.connected()
        return await storage.samples(namespaces, within=within)

    async def failed(
        self,
        namespace: str | None,
        *,
        since: datetime | timedelta | None,
        namespaces: Sequence[str] | None = None,
        most: int = MOST_FAILED,
        looks: int | None = None,
    ) -> list[Failed]:
        """Return failures of a namespace, or of those that these patterns fit.

        Look at `most` of each kind in each of them. With `looks`, look at about so many in all, few of
        which are timers. Raise InvalidRequest and NamespaceNotFound as `Client.errors`.
        """
        begin, ago = check_since(since)
        if namespace is not None:
            check_namespace(namespace)
        storage = await self._node.connected()
        if namespace is None:
            fitting = await storage.namespaces_fitting(namespaces)
            names = await storage.namespace_names() if fitting is None else fitting
        elif await storage.namespace(namespace) is None:
            raise await namespace_not_found(self._node, namespace)
        else:
            names = (namespace,)
        timers = most
        if looks is not None:
            most = min(most, max(_FEWEST_FAILED, looks // max(1, len(names))))
            timers = max(_FEWEST_FAILED, most // _COST_OF_A_TIMER)
        return await storage.failed(names, since=begin, ago=ago, most=most, most_timers=timers)

    async def preview_newest(
        self, namespace: str, *, detail_like: str | None, handler: str | None, looks: int, most: int
    ) -> BulkPreview:
        """Return a preview of a bulk as `Client.preview_repair_all`, which comes soon however many match.

        It counts up to `most`, among the newest `looks` broken processes.
        """
        await self.check_preview(namespace, detail_like=detail_like, handler=handler)
        wanted = {"detail_like": detail_like, "handler": handler}
        return await self._node.storage.preview_newest(namespace, **wanted, looks=looks, most=most)

    async def bulk_args(self, namespace: str, bulk_id: int, *, most: int) -> tuple[Any, int]:
        """Return the args of a bulk, None for those of more than `most` bytes; and how many they have."""
        wire = await self.wire_of(namespace)
        stored, size = await self._node.storage.bulk_args(bulk_id, most=most)
        return wire.decode_any(stored, "args", ValuePlace(namespace, ANY_PROCESS, "args")), size

    async def is_dry_run(
        self, namespace: str, process_id: str, task_id: int, *, fingerprint: str | None
    ) -> bool:
        """Return whether a task is the dry run of a repair; raise as `Client.result` if there is none."""
        return await self._dispatcher.is_dry_run(namespace, process_id, task_id, fingerprint)

    async def check_preview(self, namespace: str, *, detail_like: str | None, handler: str | None) -> None:
        """Raise InvalidRequest for a filter that no process could match, and NamespaceNotFound."""
        check_namespace(namespace)
        check_bulk_filter(detail_like, handler)
        await self._node.connected()
        await self._dispatcher.check_namespace(namespace)

    async def search(
        self,
        *,
        namespace: str | None,
        namespaces: Sequence[str] | None,
        status: str | None,
        metadata: Metadata | None,
        timer: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int,
        cursor: str | None,
        states: bool = True,
        room: int = ROOM,
        looks: int | None = None,
    ) -> tuple[list[Snapshot], str | None]:
        """Return a page of processes, with their states or without, and the cursor of the next page.

        With `looks`, look at no more processes than that: a page may then be short, or empty, and have a
        cursor.
        """
        if namespace is not None:
            check_namespace(namespace)
        if status is not None and status not in tuple(ProcessStatus):
            known = all_names_like(str(status), ProcessStatus)
            raise InvalidRequest(f"status must be one of {known}, not {status!r:.80}", field="status")
        check_count("limit", limit, least=1, most=MOST_ITEMS)
        since = None if created_after is None else check_moment("created_after", created_after)
        until = None if created_before is None else check_moment("created_before", created_before)
        storage = await self._node.connected()
        wanted = Wanted(
            namespace=namespace,
            namespaces=await storage.namespaces_fitting(namespaces),
            status=status,
            metadata=None if metadata is None else json_object(metadata, field="metadata"),
            created_after=since,
            created_before=until,
            timer=None if timer is None else check_timer_filter(timer),
            states=states,
            room=room,
        )
        if looks is None:
            found = await (await self._node.reads()).search(wanted, limit=limit, cursor=cursor)
        else:
            found = await self._looked(wanted, limit=limit, cursor=cursor, looks=looks)
        snapshots, following = found
        if not snapshots and namespace is not None:
            await self._dispatcher.check_namespace(namespace)
        return snapshots, following

    async def _looked(
        self, wanted: Wanted, *, limit: int, cursor: str | None, looks: int
    ) -> tuple[list[Snapshot], str | None]:
        """Return a page of the next processes that match, of so many that are looked at in their order.

        What is rare is found by its metadata instead, so far back as it may be.
        """
        browsing, reads = self._node.browsing, await self._node.reads()
        walk = await browsing.browse(wanted, cursor=cursor, looks=min(looks, _FIRST_LOOKS), room=limit + 1)
        if walk.end is not None and wanted.metadata:
            rare = await reads.with_metadata(wanted.metadata, most=_RARE + 1)
            if len(rare) <= _RARE:
                return await reads.among(wanted, rare, limit=limit, cursor=cursor)
        if walk.end is not None and looks > _FIRST_LOOKS:
            walk = await browsing.browse(wanted, cursor=cursor, looks=looks, room=limit + 1)
        snapshots, following = await reads.among(wanted, walk.process_nos, limit=limit, cursor=cursor)
        return snapshots, following or walk.end


def _is_whole(found: Sequence[Event], wanted: HistoryRange, snapshot: Snapshot, room: int | None) -> bool:
    """Return True if nothing of a range was deleted between its reads."""
    ids, first, last = [each.event_id for each in found], snapshot.first_event_id, snapshot.last_event_id
    is_forward = wanted.direction == "forward"
    step, end = (1, last) if is_forward else (-1, first)
    begin = (
        max(wanted.offset + 1, first)
        if is_forward
        else min(last, wanted.offset - 1 if wanted.offset else last)
    )
    if not ids:
        return wanted.limit == 0 or not first <= begin <= last
    if ids != list(range(ids[0], ids[0] + step * len(ids), step)) or (begin - ids[0]) * step < 0:
        return False
    is_full = len(ids) == wanted.limit or (room is not None and is_forward)
    return is_full or (end - ids[-1]) * step <= 0


def _rest(wanted: HistoryRange, found: Sequence[Event]) -> HistoryRange:
    """Return what is left of a range behind these events of it."""
    if not found:
        return wanted
    limit = None if wanted.limit is None else wanted.limit - len(found)
    return HistoryRange(found[-1].event_id, limit, wanted.direction)


def _first_of(events: Sequence[Event], limit: int | None, room: int | None) -> tuple[Event, ...]:
    """Return the first of these events: up to a limit, and as many as have room, but one at least."""
    chosen = events if limit is None else events[:limit]
    if room is None:
        return tuple(chosen)
    sizes = accumulate(len(each.payload) for each in chosen)
    fitting = sum(size <= room for size in sizes)
    return tuple(chosen[: max(1, fitting)])
