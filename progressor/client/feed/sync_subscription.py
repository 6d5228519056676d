"""Durable subscriptions for code without an event loop.

Rule: no second implementation. A batch that was read while the caller's wait ended (Ctrl-C) is the next one
to be yielded: nothing is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol, Self, TypeVar

from progressor.client.feed.subscription import EventsOfSlice, FeedBatch, Subscription
from progressor.errors import StorageUnavailable

T = TypeVar("T")


class Run(Protocol):
    """Runs a coroutine on the loop of a SyncClient, and waits for it."""

    def __call__(self, ask: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
        """Return its result, or raise its error."""


class SyncFeedBatch(EventsOfSlice):
    """FeedEvents of one slice, in order. `batch.commit()` once they are done, and all before them."""

    def __init__(self, run: Run, batch: FeedBatch) -> None:
        super().__init__(batch, batch.position)
        self._run = run
        self._batch = batch

    def commit(self) -> None:
        """Move the checkpoint of the subscription behind this batch, as FeedBatch does."""
        self._run(lambda _: self._batch.commit())


class SyncSubscription:
    """A reader of a durable subscription, made by SyncClient.subscription, with the errors of Subscription.

    Another thread that closes the client ends the wait for a batch: StorageUnavailable.
    """

    def __init__(self, run: Run, subscription: Subscription) -> None:
        self._run = run
        self._subscription = subscription
        # One coroutine at a time: one whose wait was ended may have to end itself before the next.
        self._turn = asyncio.Lock()
        self._unseen: FeedBatch | None = None

    @property
    def name(self) -> str:
        """The name of the subscription."""
        return self._subscription.name

    @property
    def slices(self) -> list[int]:
        """The numbers of the slices that this reader holds now."""
        return self._subscription.slices

    def __enter__(self) -> Self:
        try:
            self._run(self._entered)
        except Exception:
            raise
        except BaseException:
            # Ctrl-C came while it was entered, or just after.
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A client that was closed meanwhile cannot say so: the others notice by its lease.
        with suppress(StorageUnavailable):
            self._run(self._left)

    def batches(
        self,
        *,
        max: int = 500,  # noqa: A002 - pinned name
        within: timedelta = timedelta(),
    ) -> Iterator[SyncFeedBatch]:
        """Yield what comes, as Subscription.batches does, for a plain `for`."""
        batches = self._subscription.batches(max=max, within=within)

        async def following(_: Any) -> FeedBatch:
            async with self._turn:
                if self._unseen is None:
                    self._unseen = await anext(batches)
                return self._unseen

        while True:
            batch = self._run(following)
            self._unseen = None
            yield SyncFeedBatch(self._run, batch)

    async def _entered(self, _: Any) -> None:
        async with self._turn:
            await self._subscription.__aenter__()

    async def _left(self, _: Any) -> None:
        self._unseen = None
        async with self._turn:
            await self._subscription.__aexit__(None, None, None)
