"""Places in the feed: where a reader goes on, and whether that can be read.

Rule: a place is good for ever, or refused with the reason: it never means another one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

END = 2**62
"""A number behind all items of a row."""


class FeedGap(StrEnum):
    """The reasons why what comes behind a place cannot be read."""

    FOREIGN = "it is of another database"
    LOST = "the database has lost it, in a restore or a fail-over"
    DELETED = "it was deleted"


class FeedPlace(NamedTuple):
    """A place in the feed: behind an entry, by its row, the process within that, and the entry of this.

    `mark` is that of the row, 0 if nobody knows it: another row with the same position has another one.

    A reader that began at the beginning walks through the processes first, in the order of their numbers.
    Until it is through, `walk` is the process that comes next, of which it has read up to the event
    `walk_n`; -1: nothing. Of those before, all up to the rest of the place is read.
    """

    position: int
    item: int = END
    n: int = 0
    mark: int = 0
    epoch: int = 0
    walk: int | None = None
    walk_n: int = -1

    def is_behind(self, other: FeedPlace) -> bool:
        """Return whether a reader that was at the other place cannot be here: neither part goes back."""
        return self[:3] < other[:3] or self._walked < other._walked

    @property
    def _walked(self) -> tuple[bool, int, int]:
        return self.walk is None, self.walk or 0, self.walk_n


class FeedHead(NamedTuple):
    """The end of the feed: the last position, the last one that was deleted, and which feed it is.

    `mark` is that of the last row, 0 if nobody knows it.
    """

    position: int
    dropped: int
    epoch: int
    mark: int = 0

    @property
    def first_place(self) -> FeedPlace:
        """The place before all that is left."""
        return FeedPlace(self.dropped, epoch=self.epoch)

    @property
    def last_place(self) -> FeedPlace:
        """The place behind all that is numbered."""
        return FeedPlace(self.position, mark=self.mark, epoch=self.epoch)

    @property
    def beginning(self) -> FeedPlace:
        """The place before all that is stored of the processes, and all that comes."""
        return self.last_place._replace(walk=0)

    def gap_behind(self, place: FeedPlace, mark: int | None) -> FeedGap | None:
        """Return why what comes behind a place cannot be read, if so; `mark` is that of the row there."""
        if place.epoch != self.epoch:
            return FeedGap.FOREIGN
        if place.position > self.position or (place.mark and mark is not None and mark != place.mark):
            return FeedGap.LOST
        return FeedGap.DELETED if place[:3] < self.first_place[:3] else None
