"""Watches: one process as it changes, from its own rows, for a reader outside of it.

Rule: statuses that were over when a consumer asked are passed over, events never are: they come with the
next change. Nothing is read for a consumer before it asks, and nothing in a step waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from progressor.client.dispatch.dispatcher import Dispatcher
from progressor.client.reader import Reader
from progressor.client.results import ProcessChange, WatchedStatus
from progressor.client.watches.positions import REMOVED, UNKNOWN, WatchPlace, mark_of
from progressor.codecs.codec import Owner
from progressor.errors import HistoryTruncated, process_not_found
from progressor.handlers.process import Process
from progressor.inputs import HistoryRange
from progressor.model import Event, Snapshot
from progressor.node.node import Node
from progressor.node.watcher import Watch
from progressor.storage import WatchRead

# Events of one change, and bytes of their payloads, but one event at least.
_MOST_EVENTS, _ROOM = 1000, 1 << 20


class ProcessWatch:
    """A watch of one life of a process, from `Watches.begin` until it is left."""

    def __init__(
        self,
        node: Node,
        reader: Reader,
        watch: Watch,
        place: WatchPlace,
        *,
        namespace: str,
        process_id: str,
        state: Callable[[Process[Any]], Any] | None,
        events: bool,
    ) -> None:
        self._node = node
        self._reader = reader
        self._watch = watch
        self._place = place
        self._namespace, self._process_id = namespace, process_id
        self._state_of, self._shows_events = state, events
        self._status: WatchedStatus = "running"
        self.is_over = False
        """Whether the process was removed, and that was told."""

    def leave(self) -> None:
        """End the watch."""
        self._node.watcher.leave(self._watch)

    async def waits(self, seconds: float | None = None) -> bool:
        """Wait for a change; return False if there was none within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._watch.rung.wait()
        # Here ends the watch of a client that was closed.
        await self._node.connected()
        return self._watch.rung.is_set()

    async def change(self) -> ProcessChange | None:
        """Return what has changed since the change before; None for nothing that a consumer sees."""
        rings, place = self._node.watcher.rings, self._place
        after = place.last if self._shows_events else None
        read = await self._node.watcher.reads.read_watched(
            self._namespace,
            self._process_id,
            place.life,
            after=after,
            state=self._state_of is not None,
            limit=_MOST_EVENTS,
            room=_ROOM,
        )
        if after is not None and _is_lost(place, read):
            return await self._anew(read.snapshot)
        if read.snapshot is None:
            return await self._at_the_end(read)
        if after is not None and not _follows(read.events, after, read.snapshot):
            whole = await self._with_older(read, read.snapshot, after)
            # If it was removed between the two statements, the next read finds that.
            return None if whole is None else await self._told(whole, read.snapshot, rings)
        return await self._told(read, read.snapshot, rings)

    async def _told(self, read: WatchRead, snapshot: Snapshot, rings: int) -> ProcessChange | None:
        last = read.events[-1].event_id if read.events else snapshot.last_event_id
        version = read.version if read.is_all else UNKNOWN
        mark = mark_of(read.last_at)
        if not mark and last == self._place.last:
            # Retention has deleted the event, whose number may still be given again.
            mark = self._place.mark
        place, made = WatchPlace(self._place.life, last, version, mark), None
        if place[:3] != self._place[:3]:
            made = await self._made(place, snapshot.status.value, read.events, snapshot)
        # All that may fail or be cancelled is behind this.
        self._place, self._status = place, snapshot.status.value
        if read.is_all:
            self._node.watcher.rest(self._watch, version, rings=rings)
        return made

    async def _at_the_end(self, read: WatchRead) -> ProcessChange:
        """Return the events that a removed process has left; then, that it is removed."""
        last = self._place.last or 0
        events = [event for place, event in enumerate(read.events, 1) if event.event_id == last + place]
        if self._place.last is None or not events:
            place = self._place._replace(version=REMOVED)
            made = await self._made(place, "removed", (), None)
            self._place, self.is_over = place, True
            return made
        mark = mark_of(events[-1].timestamp)
        place = WatchPlace(self._place.life, events[-1].event_id, UNKNOWN, mark)
        made = await self._made(place, self._status, events, None)
        self._place = place
        return made

    async def _anew(self, snapshot: Snapshot | None) -> ProcessChange:
        """Return the process as it is, before the first event that it has: all that it has come next.

        How much of what was told is still true, nobody knows.
        """
        first = 1 if snapshot is None else snapshot.first_event_id
        status = self._status if snapshot is None else snapshot.status.value
        place = WatchPlace(self._place.life, first - 1, UNKNOWN)
        made = await self._made(place, status, (), snapshot)
        self._place, self._status = place, status
        return made

    async def _with_older(self, read: WatchRead, snapshot: Snapshot, last: int) -> WatchRead | None:
        """Return a read with its events from the archive too; None if the process is removed meanwhile.

        Raise HistoryTruncated if the retention has deleted them.
        """
        wanted = HistoryRange(last, _MOST_EVENTS)
        snapshot = await self._reader.with_history(snapshot, wanted, room=_ROOM)
        found = list(snapshot.history)
        if not found or found[0].event_id != last + 1:
            now = await self._node.watcher.reads.find_watched(self._namespace, self._process_id)
            if now is None or now.life != snapshot.life:
                return None
            raise HistoryTruncated(
                self._namespace, self._process_id, first_event_id=snapshot.first_event_id
            )
        is_all = found[-1].event_id >= snapshot.last_event_id
        return read._replace(events=found, is_all=is_all, last_at=found[-1].timestamp)

    async def _made(
        self,
        place: WatchPlace,
        status: WatchedStatus,
        events: Sequence[Event],
        snapshot: Snapshot | None,
    ) -> ProcessChange:
        of = Owner(self._namespace, self._process_id)
        decoded: tuple[Event, ...] = ()
        if events:
            wire = await self._reader.wire_of(self._namespace)
            decoded = tuple(wire.event(event, of) for event in events)
        return ProcessChange(
            position=place.shown(self._namespace, self._process_id),
            namespace=self._namespace,
            process_id=self._process_id,
            status=status,
            events=decoded,
            last_event_id=place.last or 0,
            detail=None if snapshot is None else snapshot.detail,
            state=None if snapshot is None else await self._state(snapshot),
        )

    async def _state(self, snapshot: Snapshot) -> Any:
        return None if self._state_of is None else self._state_of(await self._reader.view(snapshot))


def _is_lost(place: WatchPlace, read: WatchRead) -> bool:
    """Return whether the database has lost the last event that was told, as far as it can be seen."""
    if read.snapshot is not None and (place.last or 0) > read.snapshot.last_event_id:
        return True
    return bool(place.mark and read.told_at) and place.mark != mark_of(read.told_at)


def _follows(events: list[Event], last: int, snapshot: Snapshot) -> bool:
    """Return whether these are the next events."""
    if not events:
        return last == snapshot.last_event_id
    return [event.event_id for event in events] == list(range(last + 1, last + 1 + len(events)))


class Watches:
    """The watches of one client."""

    def __init__(self, node: Node, dispatcher: Dispatcher, reader: Reader) -> None:
        self._node = node
        self._dispatcher = dispatcher
        self._reader = reader

    async def begin(
        self,
        namespace: str,
        process_id: str,
        place: WatchPlace | None,
        *,
        state: Callable[[Process[Any]], Any] | None = None,
        events: bool = True,
    ) -> ProcessWatch:
        """Return a watch of a process, behind a place if one is given; its consumer must leave it.

        With `state`, each change has what this function makes of the process.

        Raise ProcessNotFound if there is no such process, and InvalidRequest if there are too many watches.
        """
        await self._node.connected()
        found = await self._node.watcher.reads.find_watched(namespace, process_id)
        if found is None:
            self._dispatcher.forget_namespace(namespace)
            await self._dispatcher.check_namespace(namespace)
            raise process_not_found(namespace, process_id)
        # Behind the end of one life comes the next one.
        if place is None or place.version == REMOVED:
            if found.life is None:
                raise process_not_found(namespace, process_id)
            place = WatchPlace(found.life, None, UNKNOWN)
        has_feed = found.feeds and self._node.signals is not None
        if has_feed:
            self._node.follow_feed()
        watch = self._node.watcher.add(place.life, place.version, has_feed=has_feed)
        return ProcessWatch(
            self._node,
            self._reader,
            watch,
            place,
            namespace=namespace,
            process_id=process_id,
            state=state,
            events=events,
        )
