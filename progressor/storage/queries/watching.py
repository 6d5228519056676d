"""Watching: which of many processes have changed, in one statement, and how one of them is now.

Rule: a look reads one row of each process by its number, however much it has. Nothing in a step knows who
watches.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from progressor.model import Event, Life, Snapshot
from progressor.storage.postgres.arrays import bigints
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.rows import snapshot_of
from progressor.storage.statements import Transaction


class WatchStart(NamedTuple):
    """The begin of a watch: whether the namespace has a feed, and the life now; None without a process."""

    feeds: bool
    life: Life | None


class WatchRead(NamedTuple):
    """A watched life, None once it is removed, the version of its row, and the events behind the last one.

    Without `is_all` there are more events. `told_at` is the time of the event before these, `last_at` that
    of the last of these, or of the process without any; None if it is not there.
    """

    snapshot: Snapshot | None
    version: int
    events: list[Event]
    is_all: bool
    told_at: datetime | None
    last_at: datetime | None


class WatchReads(Transactions):
    """The operations of watchers."""

    async def find_watched(self, namespace: str, process_id: str) -> WatchStart | None:
        """Return how a watch of this process begins; None if the namespace is not known."""
        rows = await self._rows("find_watched", namespace=namespace, process_id=process_id)
        if not rows:
            return None
        number = rows[0]["process_no"]
        return WatchStart(rows[0]["feeds"], None if number is None else Life(number, rows[0]["birth"]))

    async def look_watched(self, lives: Sequence[Life], versions: Sequence[int]) -> list[int]:
        """Return the places of those lives that have another version by now, or are removed."""
        rows = await self._rows(
            "look_watched",
            process_no=bigints([life.process_no for life in lives]),
            birth=bigints([life.birth for life in lives]),
            version=bigints(versions),
        )
        return [row["place"] - 1 for row in rows]

    async def read_watched(
        self,
        namespace: str,
        process_id: str,
        life: Life,
        *,
        after: int | None,
        state: bool,
        limit: int,
        room: int,
    ) -> WatchRead:
        """Return a life as it is now, with its events behind `after`; None: with none.

        There are at most `limit` events, whose payloads have `room` in bytes, but one at least.
        """
        of = {"process_no": life.process_no, "birth": life.birth}
        statements: Transaction = {"watched_process": {**of, "state": state}}
        if after is not None:
            asked = {**of, "after": after, "limit": limit, "bytes": room}
            statements = {**statements, "watched_events": asked}
        found = await self._transact("read_watched", statements)
        rows = found["watched_process"]
        next_rows = found.get("watched_events", ())
        told_at = next_rows[0]["told_at"] if next_rows else None
        events = [Event(**{name: row[name] for name in row if name != "told_at"}) for row in next_rows]
        if not rows:
            # It goes on until nothing is found: nobody knows how many there were.
            return WatchRead(None, 0, events, not events, told_at, _last_at(events))
        snapshot = snapshot_of(namespace, process_id, rows[0], ())
        # The second statement may see more than the first.
        events = [event for event in events if event.event_id <= snapshot.last_event_id]
        last = events[-1].event_id if events else after
        is_all = last is None or last >= snapshot.last_event_id
        last_at = _last_at(events) or rows[0]["last_at"]
        if after == snapshot.last_event_id:
            told_at = rows[0]["last_at"]
        return WatchRead(snapshot, rows[0]["version"], events, is_all, told_at, last_at)


def _last_at(events: Sequence[Event]) -> datetime | None:
    return events[-1].timestamp if events else None
