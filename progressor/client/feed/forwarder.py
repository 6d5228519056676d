"""Forwarding: what a subscription brings is handed to a receiver, which may fail.

Rule: nothing is passed over. What fails is tried again, with longer and longer pauses. If an event is to
blame it is found among the others, and then either holds up its slice or is parked; what comes behind a
parked one, of the same process, is parked with it. An outage parks nothing.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import NamedTuple

from progressor import metrics
from progressor.app.projection import DELIVERY_RETRIES, OnFailure
from progressor.client.feed.events import EventReader
from progressor.client.feed.positions import place_of, position_of
from progressor.client.feed.slices import Checkpoint, OpenSlice, Taken
from progressor.client.feed.subscription import Subscription
from progressor.client.results import FeedEvent
from progressor.config import RetryPolicy
from progressor.errors import (
    FeedTruncated,
    NonRetryable,
    StorageUnavailable,
    SubscriptionLost,
    Undecryptable,
)
from progressor.loggers import Logger
from progressor.node.node import Node
from progressor.outages import Outage, OutageLines, cause_of
from progressor.storage import ActedOn, Doubtful, FeedEntry, Parked, said_by
from progressor.supervision import Background

log = Logger("progressor.forwarder")

_MOST_AT_ONCE = 500
# Events that are first delivered with one checkpoint, and the seconds that such a part may take: a receiver
# that is slow, and a reader that is often restarted, get on all the same.
_FIRST_PART, _PART_SECONDS = 10, 5.0
# Processes of a slice with something parked; beyond, the slice is held up: the handler is to blame.
_MOST_PARKED = 1_000
# Parked entries that are tried again, read at once.
_MOST_TRIED = 100
# Seconds between two looks at what operators want of what is parked; between two tries in an outage.
_LOOK = 1.0
_LINES = OutageLines(
    "subscription not read, going on", "subscription still not read", "subscription is read again"
)

_Process = tuple[str, str]


class Receiver(ABC):
    """The one to whom events are handed, in order by process."""

    kind: str
    """The kind of receiver, in metrics."""

    @abstractmethod
    async def deliver(self, events: Sequence[FeedEvent], to: Checkpoint) -> None:
        """Take these, and commit the checkpoint; any error: none of it is done, or it may be done again.

        There may be none: at the beginning of a subscription, or if all that came is parked. Doubtful: it
        may be done, and must not be done again if so.
        """

    @abstractmethod
    def blames(self, error: Exception) -> bool:
        """Return whether one of the events is to blame, and no outage."""


class ForwardOptions(NamedTuple):
    """The ways to go on after a failure."""

    on_failure: OnFailure = "block"
    retries: RetryPolicy = DELIVERY_RETRIES


class Forwarder:
    """One reader of a subscription, and its receiver."""

    def __init__(
        self,
        node: Node,
        reader: EventReader,
        subscription: Subscription,
        receiver: Receiver,
        options: ForwardOptions,
    ) -> None:
        self._node = node
        self._reader = reader
        self._subscription = subscription
        self._receiver = receiver
        self._options = options
        # The processes of each slice of which something is parked.
        self._parked: dict[OpenSlice, set[_Process]] = {}
        # Events that are delivered with one checkpoint.
        self._part = _FIRST_PART
        self._background = Background(subscription=subscription.name)
        self._outage = Outage(log, _LINES, subscription=subscription.name)

    async def run(self) -> None:
        """Forward until it is cancelled, or the subscription is removed or cannot be read.

        Once it has begun, it outlasts outages of PostgreSQL, and a fail-over that loses what was read.
        """
        has_begun, refused = False, set[str]()
        while True:
            try:
                async with self._subscription as subscription:
                    has_begun = True
                    self._outage.worked()
                    await self._go_on(subscription)
            except StorageUnavailable as error:
                if not has_begun or self._node.is_closed:
                    raise
                self._outage.failed(cause_of(error))
                await asyncio.sleep(_LOOK)
            except FeedTruncated as error:
                # Entered again it goes on behind its checkpoint, unless that is lost too.
                if error.position in refused:
                    raise
                refused.add(error.position)
                where = {"subscription": self._subscription.name, "cause": str(error)}
                log.warning("subscription is entered again", extra=where)

    async def _go_on(self, subscription: Subscription) -> None:
        self._parked.clear()
        self._background = Background(subscription=subscription.name)
        try:
            looked = monotonic()
            async for taken in subscription.taken(most=_MOST_AT_ONCE, within=0.0, idle=_LOOK):
                if taken is not None:
                    await self._forward(taken)
                if monotonic() - looked >= _LOOK:
                    looked = monotonic()
                    await self._look_at_parked()
        finally:
            await self._background.stop()

    async def _forward(self, taken: Taken) -> None:
        """Deliver what came; what fails is left to a task of its own, and holds up its slice alone."""
        parked = await self._parked_of(taken.of)
        waits = [entry for entry in taken.entries if (entry.namespace, entry.process_id) in parked]
        flows = [entry for entry in taken.entries if (entry.namespace, entry.process_id) not in parked]
        to = taken.checkpoint([_behind(entry) for entry in waits])
        try:
            # In parts goes only what nothing parked stands among.
            while len(flows) > (size := self._part) and not to.parks:
                await self._deliver_part(flows[:size], Checkpoint(taken.of, flows[size - 1].place))
                flows = flows[size:]
            await self._deliver_part(flows, to)
        except (SubscriptionLost, Doubtful) as lost:
            await self._begin_anew(taken.of, lost)
        except Exception as error:  # noqa: BLE001 - of a receiver, which may raise anything
            self._begin_apart(taken.of, partial(self._struggle, taken, flows, to, error))

    async def _deliver_part(self, entries: Sequence[FeedEntry], to: Checkpoint) -> None:
        """Deliver these, and learn how many the receiver takes in the time of a part."""
        began = monotonic()
        await self._deliver(entries, to)
        took = monotonic() - began
        if took > _PART_SECONDS:
            self._part = max(1, int(len(entries) * _PART_SECONDS / took))
        elif len(entries) >= self._part and took < _PART_SECONDS / 2:
            self._part = min(_MOST_AT_ONCE, 2 * self._part)

    async def _deliver(self, entries: Sequence[FeedEntry], to: Checkpoint) -> None:
        events = [await self._reader.told(entry) for entry in entries]
        await self._hand(events, to)

    async def _hand(self, events: Sequence[FeedEvent], to: Checkpoint) -> None:
        began = monotonic()
        try:
            await self._receiver.deliver(events, to)
        except Exception:
            metrics.DELIVERIES.labels(self._subscription.name, "failed").inc()
            raise
        metrics.DELIVERIES.labels(self._subscription.name, "delivered").inc(len(events))
        for namespace in {each.namespace for each in events}:
            metrics.took(metrics.NOTIFICATION, began, namespace, self._receiver.kind)

    async def _struggle(
        self, taken: Taken, flows: Sequence[FeedEntry], to: Checkpoint, error: Exception
    ) -> None:
        """Try until all of it is delivered or parked, or the slice is another reader's."""
        open_ = taken.of
        left = await self._retry_through_outage(open_, flows, to, error)
        if left is None:
            return
        for entry in taken.entries if to.parks else left:
            await self._deliver_one(open_, entry)
        await taken.checkpoint().commit(self._node)

    def _begin_apart(self, open_: OpenSlice, work: Callable[[], Awaitable[None]]) -> None:
        """Begin a task that has a slice for itself: nothing else of it is delivered meanwhile."""
        open_.is_stuck = True
        self._background.begin("subscription", self._apart(open_, work))

    async def _apart(self, open_: OpenSlice, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (SubscriptionLost, Doubtful) as lost:
            await self._begin_anew(open_, lost)
        except Exception as stopped:  # noqa: BLE001 - whatever it is, nothing may be passed over
            # It may come again at once, and for ever.
            await asyncio.sleep(_LOOK)
            await self._begin_anew(open_, stopped)
        finally:
            open_.is_stuck = False

    async def _begin_anew(self, open_: OpenSlice, error: Exception) -> None:
        """Read a slice from its checkpoint again, if this reader still has it."""
        log.info("slice begins anew", extra=self._facts(open_) | {"cause": _cause(error)})
        await self._subscription.retake(open_)

    async def _retry_through_outage(
        self, open_: OpenSlice, flows: Sequence[FeedEntry], to: Checkpoint, error: Exception
    ) -> Sequence[FeedEntry] | None:
        """Deliver these again and again while no event is to blame; return None once all are delivered.

        If one is to blame, return what is left. Each time they go in smaller parts, of which each counts: a
        receiver that takes some events a second, or fails at one of a hundred, may never take all at once.
        """
        left, part = flows, len(flows)
        # Without an event none is to blame, and none can be parked: the receiver cannot begin.
        while not left or not self._blames(error):
            if await self._wait(open_, error, parks=bool(left)):
                return left
            part = max(1, part // 2)
            try:
                while len(left) > part and not to.parks:
                    await self._deliver(left[:part], Checkpoint(open_, left[part - 1].place))
                    left = left[part:]
                await self._deliver(left, to)
            except (SubscriptionLost, Doubtful):
                raise
            except Exception as again:  # noqa: BLE001 - of a receiver
                error = again
            else:
                return None
        return left

    async def _deliver_one(self, open_: OpenSlice, entry: FeedEntry) -> None:
        """Deliver an entry, in however many attempts, or park it."""
        parked = await self._parked_of(open_)
        process = (entry.namespace, entry.process_id)
        if process in parked:
            await Checkpoint(open_, entry.place, parks=[_behind(entry)]).commit(self._node)
            return
        while True:
            try:
                await self._deliver([entry], Checkpoint(open_, entry.place))
            except (SubscriptionLost, Doubtful):
                raise
            except Exception as error:  # noqa: BLE001 - of a receiver
                if open_.is_outage and self._blames(error):
                    # It has all attempts of its own.
                    open_.attempts, open_.is_outage = 0, False
                if self._parks(error, open_.attempts + 1, parked) or await self._wait(open_, error):
                    await self._park(open_, entry, error)
                    parked.add(process)
                    return
            else:
                return

    def _blames(self, error: Exception) -> bool:
        return isinstance(error, Undecryptable) or self._receiver.blames(error)

    def _parks(self, error: Exception, attempts: int, parked: set[_Process]) -> bool:
        if self._options.on_failure == "block" or len(parked) >= _MOST_PARKED or not self._blames(error):
            return False
        most = self._options.retries.max_attempts
        return isinstance(error, NonRetryable) or (most is not None and attempts >= most)

    async def _park(self, open_: OpenSlice, entry: FeedEntry, error: Exception) -> None:
        attempts, cause = open_.attempts + 1, _cause(error)
        parks = [Parked(entry, position_of(entry.place), attempts, cause)]
        await Checkpoint(open_, entry.place, parks=parks).commit(self._node)
        metrics.DELIVERIES.labels(self._subscription.name, "parked").inc()
        where = {"namespace": entry.namespace, "process_id": entry.process_id, "attempts": attempts}
        log.error("event is parked", extra=self._facts(open_) | where | {"cause": cause})

    async def _wait(self, open_: OpenSlice, error: Exception, *, parks: bool = True) -> bool:
        """Note a failure, and wait before the next attempt; return whether an operator wants it parked.

        With `parks` False nobody is asked for that. SubscriptionLost if the slice is lost by the end.
        """
        open_.attempts += 1
        open_.is_outage = not self._blames(error)
        cause = _cause(error)
        wanted = await self._node.storage.note_failing(open_.key, attempts=open_.attempts, error=cause)
        if wanted is None:
            raise self._lost()
        if wanted and parks:
            return True
        pause = self._pause(error, open_.attempts)
        facts = self._facts(open_) | {"attempts": open_.attempts, "pause_s": pause.total_seconds()}
        log.warning("delivery failed, trying again", extra=facts | {"cause": cause})
        await asyncio.sleep(pause.total_seconds())
        if open_.is_lost:
            # What is next may be sent by another reader, or behind a place to which an operator moved it.
            raise self._lost()
        return False

    def _lost(self) -> SubscriptionLost:
        return SubscriptionLost(self._subscription.name, "another reader has its slice by now")

    def _pause(self, error: Exception, attempts: int) -> timedelta:
        wanted = getattr(error, "retry_after", None)
        retries = self._options.retries
        # Beyond 64 doublings every policy is at its longest.
        factor = retries.backoff_coefficient ** min(attempts - 1, 64)
        longest = retries.max_interval
        own = longest if factor > longest / retries.initial_interval else retries.initial_interval * factor
        return max(own, wanted) if isinstance(wanted, timedelta) else own

    async def _parked_of(self, open_: OpenSlice) -> set[_Process]:
        if open_ not in self._parked:
            held = self._subscription.open_slices
            # Those of slices that were lost are forgotten.
            self._parked = {each: found for each, found in self._parked.items() if each in held}
            self._parked[open_] = await self._node.storage.parked_processes(open_.key)
        return self._parked[open_]

    async def _look_at_parked(self) -> None:
        """Begin what operators want of what is parked; each slice is left to a task of its own."""
        for open_ in self._subscription.open_slices:
            if open_.is_stuck or not await self._parked_of(open_):
                continue
            if await self._node.storage.acted_on(open_.key, limit=1):
                self._begin_apart(open_, partial(self._try_parked, open_))

    async def _try_parked(self, open_: OpenSlice) -> None:
        """Try what operators want tried of a slice."""
        storage = self._node.storage
        while acted := await storage.acted_on(open_.key, limit=_MOST_TRIED):
            await self._try_these(open_, acted)
        self._parked[open_] = await storage.parked_processes(open_.key)

    async def _try_these(self, open_: OpenSlice, acted: Sequence[ActedOn]) -> None:
        """Try these in order; behind one that fails, those of its process wait for another word."""
        failed: set[_Process] = set()
        for each in acted:
            process = (each.entry.namespace, each.entry.process_id)
            if (each.is_skipped or process not in failed) and not await self._try_one(open_, each):
                failed.add(process)

    async def _try_one(self, open_: OpenSlice, each: ActedOn) -> bool:
        """Try a parked entry again, or skip it; return False if it has failed again."""
        to = Checkpoint(open_, open_.stored, done=[each.parked_no])
        try:
            if each.is_skipped:
                await to.commit(self._node)
            else:
                entry = each.entry._replace(place=place_of(each.position))
                await self._hand([await self._reader.told(entry)], to)
        except (SubscriptionLost, Doubtful):
            raise
        except Exception as error:
            if not await self._node.storage.fail_parked(open_.key, each.parked_no, _cause(error)):
                raise self._lost() from error
            return False
        return True

    def _facts(self, open_: OpenSlice) -> dict[str, object]:
        return {"subscription": self._subscription.name, "slice": open_.key.slice.number}


def _cause(error: Exception) -> str:
    """Return an error in one line; of PostgreSQL, also through SQLAlchemy, without values of rows."""
    return said_by(getattr(error, "orig", None) or error)


def _behind(entry: FeedEntry) -> Parked:
    """Return an entry that waits behind an earlier one of its process."""
    return Parked(entry, position_of(entry.place), 0, None)
