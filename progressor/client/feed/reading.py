"""Readings of the feed: each reads on behind a place that it keeps in memory alone.

Rule: a reading that goes on behind a position misses nothing: what is not there any more is an error.
"""

from __future__ import annotations

from progressor.client.dispatch.dispatcher import Dispatcher
from progressor.client.feed.events import EventReader
from progressor.client.feed.looks import Looks
from progressor.client.feed.positions import Start, place_at, position_of
from progressor.client.results import FeedEvent
from progressor.errors import FeedTruncated
from progressor.node.node import Node
from progressor.storage import MOST_FEED_ENTRIES, ROOM, FeedEntry, FeedFilter, FeedPlace


class FeedReading:
    """A reading of what is `wanted` of the feed, from a place on."""

    def __init__(self, node: Node, events: EventReader, wanted: FeedFilter, place: FeedPlace) -> None:
        self._node = node
        self._events = events
        self._wanted = wanted
        self._place = place
        self._looks = Looks(node)
        self.has_more = True
        """False if the last look has read all that there was."""

    @property
    def position(self) -> str:
        """The position behind all that was looked at."""
        return position_of(self._place)

    async def look(self, *, limit: int = MOST_FEED_ENTRIES, room: int = ROOM) -> list[FeedEntry]:
        """Return the next entries, up to `limit`, none if there are none now.

        `room` is in bytes of their payloads, but one entry fits always. FeedTruncated if the feed has not
        what comes next; StorageUnavailable once the client is closed.
        """
        storage = await self._node.connected()
        self._looks.look()
        part = await storage.read_feed(self._wanted, self._place, limit=limit, room=room)
        if part.gap is not None:
            raise FeedTruncated(self.position, part.gap)
        self._place, self.has_more = part.place, part.has_more
        if part.entries or part.has_more:
            self._looks.came()
        return part.entries

    async def pause(self) -> None:
        """Wait for a hint, or for a while; do nothing if there is more already."""
        if not self.has_more:
            await self._looks.pause(self._place.position)

    async def told(self, entry: FeedEntry) -> FeedEvent:
        """Return an entry as its reader gets it; Undecryptable if its payload does not decrypt."""
        return await self._events.told(entry)


class FeedReadings:
    """The readings of one client."""

    def __init__(self, node: Node, dispatcher: Dispatcher) -> None:
        self._node = node
        self._dispatcher = dispatcher

    async def begin(self, wanted: FeedFilter, after: Start) -> FeedReading:
        """Return a reading of what comes `after`, which `check_start` has checked.

        FeedTruncated if what comes is not all there; InvalidRequest or NamespaceNotFound if nothing can
        ever come from the wanted namespaces.
        """
        storage = await self._node.connected()
        events = EventReader(self._dispatcher)
        await events.check_feeds(wanted.namespaces, await storage.fed_namespaces())
        place = await place_at(storage, after)
        return FeedReading(self._node, events, wanted, place)
