"""A reader of the feed, which tails it through all faults.

Rule: after an error it goes on behind the last position that it saw. Once it is told that the feed has not
what comes behind that, it begins anew, with another reading: what is stored first, then what comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from benchmarks.chaos.server import now
from progressor import Client, Event, FeedEvent, FeedTruncated, ProgressorError

# Seconds for which the end of the feed is waited for.
_LAST = 20.0

Name = tuple[str, str]


class Told(NamedTuple):
    """An event as a reader of the feed was told it; `payload` is None of one that was deleted before."""

    namespace: str
    process_id: str
    event_id: int
    task_id: int | None
    payload: Any
    is_deleted: bool

    @classmethod
    def of(cls, event: FeedEvent) -> Told:
        """Return what a FeedEvent tells."""
        return cls(
            event.namespace,
            event.process_id,
            event.event_id or 0,
            event.task_id,
            event.payload,
            event.is_deleted,
        )

    @property
    def name(self) -> Name:
        """The namespace and the id of its process."""
        return self.namespace, self.process_id

    def is_of(self, event: Event | None) -> bool:
        """Return whether it tells an event that is stored."""
        if event is None or (self.event_id, self.task_id) != (event.event_id, event.task_id):
            return False
        return self.is_deleted or self.payload == event.payload


class Sight(NamedTuple):
    """An event, when its step was saved and when the reader saw it."""

    told: Told
    saved: datetime
    came: datetime


class Reading:
    """What came of the feed, by process, in its order: to the end, or until it was told of a loss."""

    def __init__(self) -> None:
        self.events: defaultdict[Name, list[Told]] = defaultdict(list)

    def last_of(self, name: Name) -> int:
        """Return the number of the last event of a process, 0 if none came."""
        events = self.events.get(name)
        return events[-1].event_id if events else 0


class Follower:
    """The events that it saw, in its readings, and when."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.readings = [Reading()]
        self.sights: list[Sight] = []
        self.begun = 0
        # All that the feed has: the beginning of a subscription has only what retention has left.
        self._after: str | datetime = datetime(2000, 1, 1, tzinfo=UTC)
        self._came = asyncio.Event()

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow until the end, whatever becomes of the server."""
        tailing = asyncio.create_task(self._follow_for_ever())
        try:
            yield
        finally:
            tailing.cancel()
            await asyncio.gather(tailing, return_exceptions=True)

    async def caught_up(self, wanted: Mapping[Name, int]) -> None:
        """Wait until it has seen the last event of each process, or for some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                while any(self.readings[-1].last_of(name) < last for name, last in wanted.items()):
                    self._came.clear()
                    await self._came.wait()

    async def _follow_for_ever(self) -> None:
        async with Client(self._dsn) as client:
            while True:
                self.begun += 1
                try:
                    await self._follow(client)
                except FeedTruncated:
                    self.readings.append(Reading())
                    self._after = "beginning"
                except ProgressorError:
                    await asyncio.sleep(0.1)

    async def _follow(self, client: Client) -> None:
        async for event in client.subscribe(after=self._after):
            self._after = event.position
            told = Told.of(event)
            self.readings[-1].events[told.name].append(told)
            self.sights.append(Sight(told, event.timestamp, now()))
            self._came.set()
