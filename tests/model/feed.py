"""Readers of the feed in the model: of all of it, of what comes, and of what is stored and comes.

Rule: each notes what it has read by the number of a process, and is compared with what the oracle says.
Once rows that it has not read are deleted, as old as they must be, a reader is told so, and gives up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from progressor.storage.feed.places import FeedGap, FeedPlace
from progressor.storage.feed.reading import FeedEntry, FeedFilter
from tests.model.oracle import FEED_KEPT, Fed, Oracle, Process
from tests.model.world import World

_ALL = FeedFilter(list("ecsbpr"))
_STORED = FeedFilter(["e", "r"])
_NAME, _READER = "model", 1
Own = list[tuple[str, int]]
"""What was read of a process: letters, and the numbers of events."""


def _noted(seen: dict[int, Own], entries: Sequence[FeedEntry]) -> None:
    for each in entries:
        seen[each.process_no].append((each.letter, each.n if each.letter == "e" else 0))


def _told(fed: Sequence[Fed]) -> Own:
    return [each[:2] for each in fed]


def check_feed(world: World, oracle: Oracle, dropped_at: datetime | None, *, limit: int) -> None:
    """Number all, read all that is there, and compare; what is missing was old when it was deleted."""
    place = world.run(lambda storage: storage.feed_head()).first_place
    entries: list[FeedEntry] = []
    while True:
        part = world.run(lambda storage, place=place: storage.read_feed(_ALL, place, limit=limit))
        assert part.gap is None
        entries, place = entries + part.entries, part.place
        if not part.has_more:
            break
    seen = defaultdict[int, Own](list)
    _noted(seen, entries)
    known = {process.number: process for process in oracle.fed}
    assert seen.keys() <= known.keys()
    for number, process in known.items():
        found, fed = seen[number], process.fed
        missing = fed[: len(fed) - len(found)]
        assert found == _told(fed[len(missing) :]), (process.key, found, fed)
        for each in missing:
            assert dropped_at is not None
            assert each.at < dropped_at - FEED_KEPT, process.key
    for each in entries:
        if each.letter == "e":
            process = known[each.process_no]
            is_there = process.has_events and each.n > process.lost_events
            assert (each.payload is not None) == is_there, (process.key, each.n)
    positions = "SELECT position FROM feed WHERE position IS NOT NULL ORDER BY position"
    rows = [row["position"] for row in world.tables.execute(positions)]
    assert rows == list(range(place.position - len(rows) + 1, place.position + 1))


class Follower:
    """A reader from the first row on, who looks now and then."""

    def __init__(self, place: FeedPlace) -> None:
        self._place = place
        self._seen = defaultdict[int, Own](list)
        self._gave_up = False

    def read(self, world: World, limit: int, loss: str) -> bool:
        """Look once; return whether there may be more."""
        if self._gave_up:
            return False
        part = world.run(lambda storage: storage.read_feed(_ALL, self._place, limit=limit), loss)
        if part.gap is not None:
            assert part.gap is FeedGap.DELETED
            self._gave_up = True
            return False
        _noted(self._seen, part.entries)
        self._place = part.place
        return part.has_more

    def check(self, world: World, oracle: Oracle) -> None:
        """Read to the end: it has read all, once, and in order."""
        while self.read(world, 1000, ""):
            pass
        if not self._gave_up:
            found = {number: own for number, own in self._seen.items() if own}
            wanted = {process.number: _told(process.fed) for process in oracle.fed}
            assert found == wanted, (found, wanted)


class Walker:
    """A durable reader who begins at the beginning, of what is stored at that moment."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._place = world.run(lambda storage: storage.feed_head()).beginning
        world.run(lambda storage: storage.subscribed(_NAME, 1, self._place))
        self._gone = [process for process in oracle.fed if process not in oracle.processes.values()]
        self._stored = list(oracle.processes.values())
        self._seen = defaultdict[int, Own](list)
        self._gave_up = False

    def read(self, world: World, limit: int, loss: str) -> bool:
        """Take the slice, read behind its checkpoint, and move that; return whether there may be more."""
        if self._gave_up:
            return False
        age = timedelta(days=1)
        _, (held,) = world.run(
            lambda storage: storage.hold_slices(_NAME, _READER, host="model", lease_age=age)
        )
        assert held.place == self._place
        part = world.run(lambda storage: storage.read_feed(_STORED, held.place, limit=limit))
        if part.gap is not None:
            assert part.gap is FeedGap.DELETED
            self._gave_up = True
            return False
        assert world.run(lambda storage: storage.commit_slice(held.key, part.place, known=held.place), loss)
        _noted(self._seen, part.entries)
        self._place = part.place
        return part.has_more or part.place.walk is not None

    def check(self, world: World, oracle: Oracle) -> None:
        """Read to the end: of all that was stored or came, it has read each event once, and in order."""
        while self.read(world, 1000, ""):
            pass
        if self._gave_up:
            return
        assert self._place.walk is None
        known = [each for each in oracle.processes.values() if each.key[0] in oracle.feeding]
        known += [process for process in oracle.fed if process not in known]
        assert self._seen.keys() <= {process.number for process in known}
        for process in known:
            self._check(
                process, self._seen[process.number], is_gone=process not in oracle.processes.values()
            )

    def _check(self, process: Process, own: Own, *, is_gone: bool) -> None:
        if process in self._gone:
            assert own == [], process.key
            return
        ids = [n for letter, n in own if letter == "e"]
        assert own == [("e", n) for n in ids] + [("r", 0)] * is_gone, process.key
        assert ids == sorted(set(ids)), process.key
        assert set(ids) <= set(range(1, len(process.events) + 1)), process.key
        # What was deleted may have been read before. What a process came with is not told, but stored.
        came_with = 0 if process in self._stored else [each.name for each in process.events].count("put")
        first = max(process.lost_events, came_with) + 1
        if process.has_events:
            assert set(ids) >= set(range(first, len(process.events) + 1)), process.key
