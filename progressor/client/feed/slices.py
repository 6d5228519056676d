"""The slices that a reader of a subscription holds, and the checkpoints to which it moves them.

Rule: a checkpoint moves forward, under the lease of its slice; one who has lost that changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from progressor.errors import SubscriptionLost
from progressor.node.node import Node
from progressor.storage import (
    FeedEntry,
    FeedPlace,
    HeldSlice,
    Parked,
    SliceKey,
    StepTransaction,
    committing,
)


class OpenSlice:
    """A slice that a reader holds: how far it is read, delivered and committed."""

    def __init__(self, held: HeldSlice) -> None:
        self.key: SliceKey = held.key
        self.attempts = held.attempts
        """The attempts that failed, also those of readers before, of what comes next."""
        self.place: FeedPlace = held.place
        self.entries: list[FeedEntry] = []
        """What is read and not delivered."""
        self.since = 0.0
        self.has_more = True
        self.is_lost = False
        self.is_outage = False
        """True if the last failure was nobody's."""
        self.is_stuck = False
        """True while what was delivered, or what was parked, is tried again: nothing more is delivered."""
        # Of what was delivered last, and of what was committed.
        self._delivered = self._committed = 0
        self.stored: FeedPlace = held.place
        """The checkpoint, or one before it if the answer of a commit is lost."""
        self._lock = asyncio.Lock()

    @property
    def is_settled(self) -> bool:
        """True if all that was delivered is committed, and nothing is tried again."""
        return self._delivered == self._committed and not self.is_stuck

    @property
    def is_flowing(self) -> bool:
        """True if it can be read: it was not found lost by a commit, nor is it held up by what fails."""
        return not (self.is_lost or self.is_stuck)

    @property
    def is_at_the_beginning(self) -> bool:
        """True before anything of all that is stored is read."""
        return self.place.walk == 0

    def begin(self) -> Taken:
        """Return what comes first, which is nothing."""
        self.place = self.place._replace(walk=1)
        return self.deliver(0)

    def is_behind(self, position: int) -> bool:
        """Return whether there may be anything to read up to a position of the feed."""
        return self.has_more or self.place.walk is not None or self.place.position < position

    def deliver(self, count: int) -> Taken:
        """Return the next entries, up to so many."""
        taken, self.entries = self.entries[:count], self.entries[count:]
        self._delivered += 1
        return Taken(self, taken, taken[-1].place if self.entries else self.place, self._delivered)

    def take_back(self, taken: Taken) -> None:
        """Have what was taken last delivered again: its reader never got it."""
        self.entries = [*taken.entries, *self.entries]
        if taken.serial == self._delivered:
            self._delivered -= 1

    def take_rest_back(self, taken: Taken, count: int) -> Taken:
        """Have all but the first `count` entries of what was taken last delivered again; return these."""
        self.entries = [*taken.entries[count:], *self.entries]
        return taken._replace(entries=taken.entries[:count], place=taken.entries[count - 1].place)

    async def advance(self, node: Node) -> None:
        """Move the checkpoint over what nobody asked for, if all else is committed."""
        if self.is_settled and not self.entries and self.place != self.stored:
            await Checkpoint(self, self.place, self._delivered).commit(node)

    async def move(self, to: Checkpoint, save: Callable[[], Awaitable[bool]]) -> None:
        """Move the checkpoint; `save` returns False if the lease is lost: SubscriptionLost."""
        async with self._lock:
            if to.serial is not None and to.serial < self._committed:
                # A later one is committed.
                return
            if self.is_lost or not await save():
                self.is_lost = True
                number = self.key.slice.number
                raise SubscriptionLost(
                    self.key.name,
                    f"this reader has left it, another reader has slice {number} by now, or a fail-over "
                    "lost what was read",
                )
            self.stored, self.attempts = to.place, 0
            if to.serial is not None:
                self._committed = to.serial


def end_of(slices: Sequence[OpenSlice]) -> int | None:
    """Return the position up to which all of these are read; None if one may flow again at any moment."""
    is_read = all(each.is_flowing for each in slices)
    return min((each.place.position for each in slices), default=None) if is_read else None


class Checkpoint(NamedTuple):
    """A place to which a slice's checkpoint is moved, with what is parked, and what need not be any more.

    `serial` is that of the delivery that ends there, None within one.
    """

    of: OpenSlice
    place: FeedPlace
    serial: int | None = None
    parks: Sequence[Parked] = ()
    done: Sequence[int] = ()

    async def commit(self, node: Node) -> None:
        """Store it; SubscriptionLost if the lease is lost."""
        storage = node.storage

        async def save() -> bool:
            return await storage.commit_slice(
                self.of.key, self.place, known=self.of.stored, parks=self.parks, done=self.done
            )

        await self.of.move(self, save)

    async def commit_in(self, own: StepTransaction) -> None:
        """Store it with what a handler did, in its transaction; SubscriptionLost if the lease is lost."""

        async def save() -> bool:
            statements = committing(
                self.of.key, self.place, known=self.of.stored, parks=self.parks, done=self.done
            )
            return await own.commit(statements, "commit_slice")

        await self.of.move(self, save)


class Taken(NamedTuple):
    """Entries of a slice on their way to a reader, and the place behind them."""

    of: OpenSlice
    entries: Sequence[FeedEntry]
    place: FeedPlace
    serial: int

    def checkpoint(self, parks: Sequence[Parked] = ()) -> Checkpoint:
        """Return the checkpoint behind all of these."""
        return Checkpoint(self.of, self.place, self.serial, parks)
