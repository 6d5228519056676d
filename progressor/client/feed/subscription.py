"""Durable subscriptions: readers of the feed whose places the database keeps.

Rule: what was committed is not read again, and nothing else is passed over. A reader commits under the
lease of its slice: one that has lost it cannot.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import NamedTuple, Self, overload

from progressor.client.feed.events import EventReader
from progressor.client.feed.looks import Looks
from progressor.client.feed.positions import Start, place_at, position_of
from progressor.client.feed.slices import OpenSlice, Taken, end_of
from progressor.client.results import FeedEvent
from progressor.errors import (
    FeedTruncated,
    InvalidRequest,
    ProgressorError,
    StorageUnavailable,
    SubscriptionLost,
)
from progressor.inputs import check_count
from progressor.loggers import Logger
from progressor.node.node import Node
from progressor.storage import FeedFilter, FeedPlace
from progressor.supervision import Background

log = Logger("progressor.subscription")

MOST_SLICES = 64
_MOST_TAKEN = 10_000
_SHORTEST_LEASE, _LONGEST_LEASE = timedelta(seconds=1), timedelta(hours=1)
# A share of lease_age: so often a reader is seen.
_BEATS = 3


class SubscriptionOptions(NamedTuple):
    """The checked arguments of a subscription. `slices` None: as many as it has, or one."""

    name: str
    wanted: FeedFilter
    start: Start
    slices: int | None
    lease_age: timedelta


class EventsOfSlice(Sequence[FeedEvent]):
    """FeedEvents of one slice, in order."""

    def __init__(self, events: Sequence[FeedEvent], position: str) -> None:
        self._events = events
        self.position = position
        """The position behind this batch."""

    @overload
    def __getitem__(self, index: int) -> FeedEvent: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[FeedEvent]: ...

    def __getitem__(self, index: int | slice) -> FeedEvent | Sequence[FeedEvent]:
        return self._events[index]

    def __iter__(self) -> Iterator[FeedEvent]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)


class FeedBatch(EventsOfSlice):
    """FeedEvents of one slice, in order. `await batch.commit()` once they are done, and all before them."""

    def __init__(self, node: Node, taken: Taken, events: Sequence[FeedEvent]) -> None:
        super().__init__(events, position_of(taken.place))
        self._node = node
        self._taken = taken

    async def commit(self) -> None:
        """Move the checkpoint of the subscription behind this batch.

        SubscriptionLost if another reader has the slice by now: it reads these events again.
        StorageUnavailable if PostgreSQL cannot be reached: then it may have moved, or not.
        """
        await self._taken.checkpoint().commit(self._node)


class Subscription:
    """A reader of a durable subscription, made by Client.subscription.

    Entering it raises NamespaceNotFound or InvalidRequest if nothing can come from its namespaces,
    InvalidRequest if the subscription has another number of slices or this reader is entered already, and
    FeedTruncated if it cannot begin at its start. Leaving it gives its slices to other readers at once.
    """

    def __init__(self, node: Node, reader: EventReader, options: SubscriptionOptions) -> None:
        self.name = options.name
        self._node = node
        self._reader = reader
        self._options = options
        self._reader_id = secrets.randbits(63)
        self._slices: dict[int, OpenSlice] = {}
        # The last lease under which each slice was opened: a lease is opened once, so that nothing is
        # delivered a second time beside a commit that is under way. Slices in doubt are given back first.
        self._opened: dict[int, int] = {}
        self._doubtful: set[int] = set()
        # The checkpoints of slices that were begun anew because the database has them further back.
        self._went_back: set[FeedPlace] = set()
        self._holding = asyncio.Lock()
        self._is_gone = self._is_entered = False
        self._background = Background(subscription=options.name)

    @property
    def slices(self) -> list[int]:
        """The numbers of the slices that this reader holds now."""
        return sorted(self._slices)

    async def __aenter__(self) -> Self:
        if self._is_entered:
            # Its slices would stay with a heartbeat that no exit ends.
            raise InvalidRequest(
                f"this reader of subscription {self.name!r} is entered already: make another one",
                field="subscription",
            )
        self._is_entered = True
        try:
            await self._enter()
        except BaseException:
            self._is_entered = False
            raise
        self._background.keep("subscription", self._beat)
        return self

    async def _enter(self) -> None:
        storage = await self._node.connected()
        options = self._options
        slices = await storage.subscribed(self.name, 1, None)
        known, named = await storage.fed_namespaces(), options.wanted.namespaces
        if slices is not None and named is not None:
            # Some may be retired since it was made: that holds up none of the others.
            named = [each for each in named if "*" in each or each in known] or named
        if not await self._reader.check_feeds(named, known):
            facts = {"subscription": self.name, "namespaces": "all" if named is None else ", ".join(named)}
            log.warning("no namespace fits this subscription yet", extra=facts)
        # Once, unless an operator removes it at this moment.
        while slices is None:
            place = await place_at(storage, options.start)
            slices = await storage.subscribed(self.name, options.slices or 1, place)
        if options.slices not in (None, slices):
            raise InvalidRequest(
                f"subscription {self.name!r} has {slices} slices, not {options.slices}: take another name, "
                "or remove it to begin anew",
                field="slices",
            )
        self._background = Background(subscription=self.name)
        self._went_back.clear()
        try:
            await self._hold()
        except BaseException:
            # Slices that nobody reads would wait for the end of this lease.
            await self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._is_entered = False
        await self._background.stop()
        await self._leave()

    async def _leave(self) -> None:
        for each in self._slices.values():
            each.is_lost = True
        self._slices.clear()
        # If it cannot say so, the others notice by its lease.
        with suppress(StorageUnavailable):
            await self._node.storage.leave_subscription(self.name, self._reader_id)

    async def batches(
        self,
        *,
        max: int = 500,  # noqa: A002 - pinned name
        within: timedelta = timedelta(),
    ) -> AsyncIterator[FeedBatch]:
        """Yield what comes, in batches of up to `max` events of a slice, for ever.

        A batch that is not full waits up to `within` for more. Another loop goes on behind what this one
        has yielded; read in one at a time.

        Raise FeedTruncated if the feed has no longer what comes next, Undecryptable at a payload that does
        not decrypt, once all before it is yielded, InvalidRequest outside of `async with`, and
        SubscriptionLost if the subscription was removed.
        """
        async for taken in self.taken(
            most=check_count("max", max, least=1, most=_MOST_TAKEN), within=_checked_within(within)
        ):
            if taken is None:
                continue
            yield await self._told(taken)

    async def _told(self, taken: Taken) -> FeedBatch:
        """Return a batch of what was taken, up to one that cannot be told, which is raised next."""
        events: list[FeedEvent] = []
        try:
            for entry in taken.entries:
                events.append(await self._reader.told(entry))  # noqa: PERF401 - some are left by an error
        except BaseException as error:
            # Another loop would go on behind them, and its commit pass over them.
            if not events or not isinstance(error, Exception):
                taken.of.take_back(taken)
                raise
            taken = taken.of.take_rest_back(taken, len(events))
        return FeedBatch(self._node, taken, events)

    @property
    def open_slices(self) -> list[OpenSlice]:
        """The slices that this reader holds now."""
        return list(self._slices.values())

    async def retake(self, open_: OpenSlice) -> None:
        """Begin a slice anew at its checkpoint, under another lease: nobody knows where that is."""
        self._drop(open_)
        # Where this fails, the next beat does it.
        with suppress(StorageUnavailable):
            await self._hold()

    async def taken(
        self, *, most: int, within: float, idle: float | None = None
    ) -> AsyncIterator[Taken | None]:
        """Yield what comes as it is stored, and with `idle` None whenever nothing came for so long.

        Both durations are in seconds.
        """
        came = monotonic()
        looks = Looks(self._node)
        while True:
            await self._node.connected()
            self._check_there()
            await self._check_not_lost()
            looks.look()
            # How far the feed goes, once a slice is read to its end: others that are there need no read.
            reached = None
            for open_ in self._flowing:
                if idle is not None and open_.is_at_the_beginning:
                    yield open_.begin()
                if reached is None or open_.is_behind(reached):
                    reached = await self._read(open_, most)
                while open_.is_flowing and self._is_due(open_, most, within):
                    looks.came()
                    came = monotonic()
                    yield open_.deliver(most)
            if idle is not None and monotonic() - came >= idle:
                came = monotonic()
                yield None
            if not any(each.has_more for each in self._flowing):
                rests = [self._rest_of(each, within) for each in self._flowing if each.entries]
                await looks.pause(end_of(self.open_slices), max(0.001, min(rests, default=1.0)))

    @property
    def _flowing(self) -> list[OpenSlice]:
        """The slices that can be read."""
        return [each for each in self._slices.values() if each.is_flowing]

    async def _read(self, open_: OpenSlice, most: int) -> int | None:
        """Read on in a slice, unless enough waits; return the end of the feed if that is reached."""
        if len(open_.entries) >= most:
            return None
        place = open_.place
        part = await self._node.storage.read_feed(
            self._options.wanted, place, slice_=open_.key.slice, limit=most - len(open_.entries)
        )
        if part.gap is not None:
            raise FeedTruncated(position_of(place), part.gap, self._advice)
        if open_.place is not place:
            # Another loop of this reader has read this meanwhile.
            return None
        if part.entries and not open_.entries:
            open_.since = monotonic()
        open_.entries += part.entries
        open_.place, open_.has_more = part.place, part.has_more
        return None if part.has_more else part.place.position

    @property
    def _advice(self) -> str:
        # The checkpoint may be behind what a reader has in memory.
        return (
            "enter it again, to go on behind its checkpoint; if that is refused too, let it begin anew: "
            f"progressor subscriptions move {self.name} beginning"
        )

    def _is_due(self, open_: OpenSlice, most: int, within: float) -> bool:
        if len(open_.entries) >= most:
            return True
        return bool(open_.entries) and self._rest_of(open_, within) <= 0

    @staticmethod
    def _rest_of(open_: OpenSlice, within: float) -> float:
        """Return for how many seconds what is read waits for more."""
        return open_.since + within - monotonic()

    def _check_there(self) -> None:
        if not self._is_entered:
            raise InvalidRequest(
                f"subscription {self.name!r} is read inside of its `async with` alone", field="subscription"
            )
        if self._is_gone:
            raise SubscriptionLost(self.name, "it was removed")

    async def _check_not_lost(self) -> None:
        """Raise FeedTruncated if a slice was moved back to where the feed has lost what came behind."""
        for place in tuple(self._went_back):
            gap = await self._node.storage.feed_gap(place)
            if gap is not None:
                raise FeedTruncated(position_of(place), gap, self._advice)
            self._went_back.discard(place)

    async def _beat(self) -> None:
        while not self._is_gone:
            await asyncio.sleep(self._options.lease_age.total_seconds() / _BEATS)
            try:
                await self._hold()
                for open_ in self._flowing:
                    with suppress(SubscriptionLost):
                        await open_.advance(self._node)
            except ProgressorError as error:
                log.warning("subscription reader is not seen", extra=self._facts | {"cause": str(error)})

    async def _hold(self) -> None:
        """Be seen, and take or give slices as the share is."""
        async with self._holding:
            await self._free_doubtful()
            await self._take()
            await self._free_doubtful()

    async def _free_doubtful(self) -> None:
        if self._doubtful:
            await self._node.storage.free_slices(self.name, self._reader_id, sorted(self._doubtful))
            self._doubtful.clear()

    async def _take(self) -> None:
        known = {open_.key: open_.stored for open_ in self.open_slices}
        share, held = await self._node.storage.hold_slices(
            self.name, self._reader_id, host=socket.gethostname(), lease_age=self._options.lease_age
        )
        self._is_gone = share == 0
        # A database that has lost a commit still has the lease; the rows of a projection went with it.
        back = {each.key for each in held if each.place.is_behind(known.get(each.key, each.place))}
        keys = {each.key for each in held} - back
        for open_ in self.open_slices:
            if open_.key in back:
                self._went_back.add(known[open_.key])
            if open_.is_lost or open_.key not in keys:
                self._drop(open_)
        for each in held:
            number = each.key.slice.number
            if number in self._slices:
                continue
            if self._opened.get(number) == each.key.lease:
                self._doubtful.add(number)
            else:
                self._opened[number] = each.key.lease
                self._slices[number] = OpenSlice(each)
                self._doubtful.discard(number)
        # Others get those of which nothing is under way.
        settled = [each for each in self.open_slices if each.is_settled]
        for open_ in settled[: max(0, len(self._slices) - share)]:
            self._drop(open_)

    def _drop(self, open_: OpenSlice) -> None:
        """Read no more of a slice; it is given back, if the reader still has it."""
        open_.is_lost = True
        number = open_.key.slice.number
        if self._slices.get(number) is open_:
            del self._slices[number]
            self._doubtful.add(number)

    @property
    def _facts(self) -> dict[str, object]:
        return {"subscription": self.name, "slices": self.slices}


def check_lease_age(value: object) -> timedelta:
    """Return a lease age that readers can keep; InvalidRequest if it is none."""
    if not isinstance(value, timedelta) or not _SHORTEST_LEASE <= value <= _LONGEST_LEASE:
        raise InvalidRequest("lease_age must be a timedelta of 1 second to 1 hour", field="lease_age")
    return value


def _checked_within(value: timedelta) -> float:
    if not isinstance(value, timedelta) or not timedelta() <= value <= timedelta(hours=1):
        raise InvalidRequest("within must be a timedelta up to an hour", field="within")
    return value.total_seconds()
