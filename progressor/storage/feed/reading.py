"""Reading the feed: rows are numbered as they are read, and only numbered ones are read.

Rule: no position is given below one that was given before, so a reader that goes on behind the last place
that it has read misses nothing. Where that cannot be kept, the read says so, and why. A read looks at a
bounded number of rows, whatever its filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from progressor.inputs import LAST_ID
from progressor.model import Metadata
from progressor.rights import like
from progressor.storage.feed.places import FeedGap, FeedHead, FeedPlace
from progressor.storage.postgres.arrays import texts
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.statements import Params, Row, Transaction
from progressor.storage.values import ROOM

# Rows of the feed or processes, and entries.
_WINDOW, MOST_FEED_ENTRIES = 1000, 1000
# Rows of the feed among which one may come late, and hide none of the others from who begins at a moment.
_MOST_LATE = 10_000


class FeedFilter(NamedTuple):
    """The choice of a reader: patterns of namespaces, names of events, letters of entries; None: any."""

    letters: Sequence[str]
    namespaces: Sequence[str] | None = None
    names: Sequence[str] | None = None


class FeedEntry(NamedTuple):
    """An event, or what happened to a process.

    `n` is the number of an event. `metadata` and `payload` are None of what is no event, and of an event
    that was deleted.
    """

    place: FeedPlace
    process_no: int
    letter: str
    namespace: str
    process_id: str
    n: int
    task_id: int | None
    timestamp: datetime
    metadata: Metadata | None
    payload: bytes | None


class FeedPart(NamedTuple):
    """The entries of one read, the place behind which to go on, and whether there is more by now.

    With a `gap` there are none: something is missing behind the place that was asked for.
    """

    entries: list[FeedEntry]
    place: FeedPlace
    has_more: bool
    gap: FeedGap | None = None


class Slice(NamedTuple):
    """One of the parts into which a feed is split by process: each process is in one of them."""

    number: int = 0
    of: int = 1


class FeedReads(Transactions):
    """The operations of readers."""

    async def fed_namespaces(self) -> dict[str, bool]:
        """Return the known namespaces, and of each whether it has a feed."""
        return {row["name"]: row["feeds"] for row in await self._rows("fed_namespaces")}

    async def feed_head(self) -> FeedHead:
        """Give all that is committed its position, and return how far the feed goes."""
        while True:
            statements = {**_NUMBERING, "feed_head": {}}
            found = await self._transact("feed_head", statements)
            if not found["number_feed"][0]["has_more"]:
                return FeedHead(**found["feed_head"][0])

    async def feed_place_at(self, moment: datetime) -> FeedPlace | None:
        """Return the place before all that is not older than a moment; None if that is deleted in part."""
        await self.feed_head()
        (row,) = await self._rows("feed_place_at", moment=moment, back=_MOST_LATE)
        if row["position"] == row["dropped"] > 0:
            return None
        return FeedPlace(row["position"], epoch=row["epoch"])

    async def feed_gap(self, place: FeedPlace) -> FeedGap | None:
        """Return why what comes behind a place cannot be read, if so."""
        part = await self.read_feed(FeedFilter([]), place._replace(walk=None), limit=1)
        return part.gap

    async def read_feed(
        self,
        wanted: FeedFilter,
        after: FeedPlace,
        *,
        slice_: Slice = Slice(),  # noqa: B008 - immutable
        limit: int = MOST_FEED_ENTRIES,
        room: int = ROOM,
    ) -> FeedPart:
        """Return the next entries behind a place, up to `limit`; `room` is in bytes of their payloads.

        While a reader walks there may be as many bytes again.
        """
        params: Params = {
            **after._asdict(),
            **_filter_columns(wanted),
            "slice": slice_.number,
            "slices": slice_.of,
            "window": _WINDOW,
            "limit": limit,
            "bytes": room,
        }
        statements: dict[str, Params] = {**_NUMBERING, "read_feed": params}
        if after.walk is not None:
            # What the feed has by now comes first; nothing more is numbered meanwhile.
            statements |= {"lock_feed": {"always": True}, "walk_feed": params}
        found = await self._transact("read_feed", statements)
        part = _part(found["read_feed"], after, limit, has_unnumbered=found["number_feed"][0]["has_more"])
        if after.walk is None or part.gap or part.has_more:
            return part
        return _joined(part, _walked(found["walk_feed"], part.place), limit)


_NUMBERING: Transaction = {"lock_feed": {"always": False}, "number_feed": {"limit": MOST_FEED_ENTRIES}}


def _filter_columns(wanted: FeedFilter) -> Params:
    namespaces = wanted.namespaces
    return {
        "letters": texts(wanted.letters),
        "namespaces": None if namespaces is None else texts([like(each) for each in namespaces]),
        "names": None if wanted.names is None else texts(wanted.names),
    }


def _part(rows: Sequence[Row], after: FeedPlace, limit: int, *, has_unnumbered: bool) -> FeedPart:
    first = rows[0]
    head = FeedHead(first["head"], first["dropped"], first["epoch"])
    gap = head.gap_behind(after, first["mark_before"])
    if gap is not None:
        return FeedPart([], after, has_more=False, gap=gap)
    entries = [] if first["position"] is None else [_entry(row, _place_in_feed(row, after)) for row in rows]
    if entries and (first["found"] > len(entries) or len(entries) == limit):
        return FeedPart(entries, entries[-1].place, has_more=True)
    # All of the window was read, as far as it is numbered.
    reached = min(after.position + _WINDOW, head.position)
    place = FeedPlace(reached, mark=first["mark_reached"] or 0, epoch=head.epoch)
    place = place._replace(walk=after.walk, walk_n=after.walk_n)
    return FeedPart(entries, place, head.position > reached or has_unnumbered)


def _walked(rows: Sequence[Row], after: FeedPlace) -> FeedPart:
    """Return what the walk has read, behind all that the feed has."""
    first = rows[0]
    entries = (
        [] if first["process_no"] is None else [_entry(row, _place_in_walk(row, after)) for row in rows]
    )
    if entries and first["found"] > len(entries):
        return FeedPart(entries, entries[-1].place, has_more=True)
    if first["is_last"]:
        # What is committed from now on is told by the feed alone.
        return FeedPart(entries, after._replace(walk=None, walk_n=-1), has_more=True)
    return FeedPart(entries, after._replace(walk=first["next_no"], walk_n=first["next_n"]), has_more=True)


def _joined(part: FeedPart, walked: FeedPart, limit: int) -> FeedPart:
    """Return what the feed told and what was walked: a walk goes on, however much comes meanwhile."""
    left = walked.entries[: limit - len(part.entries)]
    place = walked.place if len(left) == len(walked.entries) else left[-1].place
    return FeedPart([*part.entries, *left], place, walked.has_more)


def _place_in_feed(row: Row, after: FeedPlace) -> FeedPlace:
    return after._replace(position=row["position"], item=row["item"], n=row["n"], mark=row["mark"])


def _place_in_walk(row: Row, after: FeedPlace) -> FeedPlace:
    if row["n"] == LAST_ID:
        # What happened to the process, behind its events.
        return after._replace(walk=row["process_no"] + 1, walk_n=-1)
    return after._replace(walk=row["process_no"], walk_n=row["n"])


def _entry(row: Row, place: FeedPlace) -> FeedEntry:
    return FeedEntry(place, *(row[name] for name in FeedEntry._fields[1:]))
