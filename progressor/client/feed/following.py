"""Following the feed: what processes do, as it is committed, for readers outside of them.

Rule: a reader that goes on behind a position misses nothing: what is not there any more is an error, and an
event whose row was deleted is told as such. Nothing in a step waits for a reader.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta

from progressor.app.projection import DELIVERY_RETRIES, OnFailure, Projection, check_on_failure
from progressor.client.dispatch.dispatcher import Dispatcher
from progressor.client.feed.events import EventReader, filter_of
from progressor.client.feed.forwarder import Forwarder, ForwardOptions, Receiver
from progressor.client.feed.positions import Start, check_start
from progressor.client.feed.projecting import ProjectionReceiver
from progressor.client.feed.reading import FeedReadings
from progressor.client.feed.sink import Sink, SinkReceiver
from progressor.client.feed.subscription import (
    MOST_SLICES,
    Subscription,
    SubscriptionOptions,
    check_lease_age,
)
from progressor.client.results import FeedEvent
from progressor.config import RetryPolicy
from progressor.inputs import check_count, check_text
from progressor.model import FeedKind
from progressor.node.node import Node
from progressor.storage import FeedFilter


class Following:
    """The methods of Client that follow the feed."""

    _node: Node
    _dispatcher: Dispatcher
    readings: FeedReadings

    def subscribe(
        self,
        *,
        namespaces: Iterable[str] | None = None,
        events: Iterable[str] | None = None,
        kinds: Iterable[FeedKind] = ("event",),
        after: Start = "latest",
    ) -> AsyncIterator[FeedEvent]:
        """Return what processes do, as it is committed: `async for event in client.subscribe(): …`.

        `namespaces` are names or patterns (`billing.*`), `events` the names of events; None: all. `kinds`:
        `event`, and what happens to processes: `created`, `step` (one that changed something), `broken`,
        `repaired`, `removed`. `after`: `latest`, for what is committed once the loop waits for its first
        event; `beginning`, for what is stored of the processes, one after the other, and then what they do;
        a moment (with a time zone), for what was saved from then on; or a position, to go on behind it.

        The events of a process come in their order, each once. The loop raises FeedTruncated if the feed
        has not what comes behind `after`, InvalidRequest if none of the namespaces has a feed, and
        Undecryptable at a payload that does not decrypt.
        """
        wanted = filter_of(namespaces, events, kinds)
        return self._followed(wanted, check_start("after", after))

    def subscription(
        self,
        name: str,
        *,
        namespaces: Iterable[str] | None = None,
        events: Iterable[str] | None = None,
        kinds: Iterable[FeedKind] = ("event",),
        start: Start = "latest",
        slices: int | None = None,
        lease_age: timedelta = timedelta(seconds=10),
    ) -> Subscription:
        """Return a reader of a durable subscription: `async with client.subscription("x") as events: …`.

        The database keeps how far it has come, by its `name`. The choice of what is read is that of
        `subscribe`. The first reader makes it, to begin at `start`, as `after` of `subscribe`; later ones
        go on where the last batch was committed.

        With `slices`, 1 to 64, several readers share it: each process is in one slice, and each slice has
        one reader at a time. It is fixed by the first reader; None: as it is, or 1. A reader that was not
        seen for `lease_age` loses its slices to others.

        Raise InvalidRequest for bad input; see Subscription for what entering and reading it raises.
        """
        wanted = filter_of(namespaces, events, kinds)
        made = SubscriptionOptions(
            check_text("name", name),
            wanted,
            check_start("start", start),
            None if slices is None else check_count("slices", slices, least=1, most=MOST_SLICES),
            check_lease_age(lease_age),
        )
        return Subscription(self._node, EventReader(self._dispatcher), made)

    async def forward(
        self,
        name: str,
        sink: Sink,
        *,
        namespaces: Iterable[str] | None = None,
        events: Iterable[str] | None = None,
        kinds: Iterable[FeedKind] = ("event",),
        start: Start = "latest",
        slices: int | None = None,
        on_failure: OnFailure = "block",
        retries: RetryPolicy | None = None,
    ) -> None:
        """Send what processes do to a sink, until cancelled; of several that do so, one sends at a time.

        How far it has come is kept as a subscription of this `name`, whose arguments are the first ones.
        While the sink cannot be reached, all waits. An event that it refuses holds up what comes behind it
        (`on_failure="block"`), or is put aside with what comes later of its process (`"park"`), after the
        attempts of `retries`: None for eight within some two minutes.

        Raise FeedTruncated if the feed has no longer what comes next, SubscriptionLost if the subscription
        was removed, and what entering a Subscription raises.
        """
        subscription = self.subscription(
            name, namespaces=namespaces, events=events, kinds=kinds, start=start, slices=slices
        )
        options = ForwardOptions(check_on_failure(on_failure), retries or DELIVERY_RETRIES)
        await self._forwarder(subscription, SinkReceiver(self._node, sink), options).run()

    async def project(self, projection: Projection) -> None:
        """Run a projection, until cancelled; of several that do so, one runs it at a time.

        An App hands it to its engines; this is for code that serves no namespace. Raise as `forward` does.
        """
        receiver = ProjectionReceiver(self._node, projection)
        subscription = self.subscription(
            projection.subscription,
            namespaces={each.namespace for each in projection.functions},
            events=projection.names,
            kinds={each.kind for each in projection.functions},
            start=projection.start,
        )
        options = ForwardOptions(projection.on_failure, projection.retries)
        try:
            await self._forwarder(subscription, receiver, options).run()
        finally:
            await receiver.close()

    def _forwarder(
        self, subscription: Subscription, receiver: Receiver, options: ForwardOptions
    ) -> Forwarder:
        return Forwarder(self._node, EventReader(self._dispatcher), subscription, receiver, options)

    async def _followed(self, wanted: FeedFilter, after: Start) -> AsyncIterator[FeedEvent]:
        reading = await self.readings.begin(wanted, after)
        while True:
            # Here ends the loop of a client that was closed.
            for entry in await reading.look():
                yield await reading.told(entry)
            await reading.pause()
