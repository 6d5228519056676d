"""Bulks, repairs of all processes that match: their nouns, and every step of their progress. Pure.

Rule: storage loads a `HeldBulk`, does what it has room for, and stores what `advance` returns. Pure: no
clock, no database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

# Repairs of a bulk that are under way at once; so many may still run after it was stopped.
MOST_UNDER_WAY = 1000
# The fields of a bulk that count processes.
COUNTS = ("looked_at", "passed_by", "begun", "repaired", "refused", "failed", "removed", "redone")

# The most lost time that a bulk makes up for after it was held up.
_BURST = timedelta(seconds=1)
# The pause between two rounds of a bulk that has begun repairs or waits for their ends; and after a round
# that failed.
_PAUSE, _LONG_PAUSE = timedelta(milliseconds=200), timedelta(seconds=5)
# The time within which the end of a repair is seen, however slow the pace.
_SEEN_WITHIN = timedelta(seconds=5)


class BulkStatus(StrEnum):
    """The statuses of a bulk; the last two are final."""

    RUNNING = "running"
    STOPPING = "stopping"
    """The bulk begins no more repairs; those that it began go on."""
    STOPPED = "stopped"
    FINISHED = "finished"

    @property
    def is_final(self) -> bool:
        return self in (BulkStatus.STOPPED, BulkStatus.FINISHED)


@dataclass(frozen=True, slots=True)
class Bulk:
    """The repair of all processes that match a filter and were broken when it was made.

    `looked_at` counts broken processes, `begun` the repairs of those that matched. Of these repairs,
    `repaired` succeeded, `refused` ended with the handler's `Reject`, `failed` failed, and `removed` ended
    because somebody removed the process; the others are under way. `passed_by` counts processes that
    matched and were left alone: repaired or removed meanwhile, in repair, or broken anew; a bulk waits for
    the end of a dry run. `left` counts those that match and are to come, None if they were not counted;
    there may be more if `has_more`. `rate` is in repairs per second. With `redo`, the call or notify that
    broke a process is run again once the process is repaired, and after it those cancelled since then;
    `redone` counts the requests that were accepted again, however they end.
    """

    bulk_id: int
    namespace: str
    status: BulkStatus
    created_at: datetime
    ended_at: datetime | None
    rate: float
    simple: bool
    detail_like: str | None = None
    handler: str | None = None
    redo: bool = False
    looked_at: int = 0
    passed_by: int = 0
    begun: int = 0
    repaired: int = 0
    refused: int = 0
    failed: int = 0
    removed: int = 0
    redone: int = 0
    last_error: str | None = None
    left: int | None = None
    has_more: bool = False

    @property
    def under_way(self) -> int:
        """The number of repairs that were begun and have not ended."""
        return self.begun - self.repaired - self.refused - self.failed - self.removed


class Candidate(NamedTuple):
    """A broken process that a look reached, as the `place`-th; repaired if it `matches` the filter."""

    process_no: int
    process_id: str
    created_at: datetime
    place: int
    matches: bool


class BulkLook(NamedTuple):
    """The processes that a round is to repair, and the last one that it looked at.

    `at_end` if there are no more; `pause` is the time before the next round.
    """

    at_end: bool
    chosen: Sequence[Candidate] = ()
    last: Candidate | None = None
    pause: timedelta = _PAUSE

    @staticmethod
    def of(rows: Sequence[Candidate], *, room: int, looks: int) -> BulkLook:
        """Return the look at these: the matching ones, at most `room`, and the last of at most `looks`."""
        if not rows:
            return BulkLook(at_end=True)
        chosen, end = [row for row in rows if row.matches], rows[-1]
        # Without room for all that match, the next look goes on behind the last chosen.
        last = chosen[-1] if len(chosen) == room else end
        at_end = last.place == end.place < looks
        seeks = len(chosen) < room and not at_end
        return BulkLook(at_end, chosen, last, timedelta() if seeks else _PAUSE)

    def up_to(self, count: int) -> BulkLook:
        """Return the look that ends behind so many of the chosen; the next one begins with those left."""
        if count >= len(self.chosen):
            return self
        chosen = self.chosen[:count]
        return BulkLook(at_end=False, chosen=chosen, last=chosen[-1] if chosen else None)


class Ended(NamedTuple):
    """The numbers of repairs whose ends a round has seen, and the error of the last one that has any."""

    repaired: int = 0
    refused: int = 0
    failed: int = 0
    removed: int = 0
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBulk(Bulk):
    """A bulk whose row a round holds, since `now`.

    It looks behind the process `cursor_no`, unless it is `at_end`. From `paced_at` on its pace allows
    another repair. `still_since` is its last progress, or the end of a rest that its pace demanded.
    """

    now: datetime
    until_task: int
    pace: timedelta
    args: bytes | None
    request_hash: bytes
    cursor_at: datetime | None
    cursor_no: int
    at_end: bool
    paced_at: datetime
    next_at: datetime
    still_since: datetime

    @property
    def place(self) -> tuple[int, datetime | None, int]:
        """The bulk, and the place in it at which a round begins."""
        return self.bulk_id, self.cursor_at, self.cursor_no

    def room(self, most: int) -> int:
        """Return how many repairs may begin now, by the pace and by the number that are under way."""
        behind = self.now - max(self.paced_at, self.now - _BURST)
        if self.status is not BulkStatus.RUNNING or self.at_end or behind < timedelta():
            return 0
        return max(0, min(most, 1 + behind // self.pace, MOST_UNDER_WAY - self.under_way))

    def advance(
        self, look: BulkLook, ended: Ended, *, begun: int = 0, done: int = 0, redone: int = 0
    ) -> BulkRound:
        """Return the bulk after a round that began the repairs of so many of the chosen processes.

        `done` of these repairs have ended already. A process that was chosen and not begun is passed by.
        So many requests were `redone`.
        """
        new = {
            "looked_at": look.last.place if look.last else 0,
            "passed_by": len(look.chosen) - begun,
            "begun": begun,
            "repaired": ended.repaired + done,
            "refused": ended.refused,
            "failed": ended.failed,
            "removed": ended.removed,
            "redone": redone,
        }
        counts = {name: getattr(self, name) + count for name, count in new.items()}
        paced_at = max(self.paced_at, self.now - _BURST) + begun * self.pace
        after = replace(
            self,
            **counts,
            last_error=ended.last_error or self.last_error,
            cursor_at=look.last.created_at if look.last else self.cursor_at,
            cursor_no=look.last.process_no if look.last else self.cursor_no,
            at_end=look.at_end,
            paced_at=paced_at,
            next_at=max(paced_at, self.now + look.pause),
            still_since=max(self.now, paced_at) if any(new.values()) else self.still_since,
        )
        return BulkRound(_settled(after), new)

    def redo_some(self, redone: int, error: str | None = None) -> BulkRound:
        """Return the bulk after a round that only ran requests again; `error` is of one that cannot be."""
        look = BulkLook(self.at_end, pause=timedelta())
        return self.advance(look, Ended(last_error=error), redone=redone)

    def give_up(self, tried: Candidate | None, error: str) -> BulkRound:
        """Return the bulk after a round that failed: it passes by the process that was tried.

        If none could be looked at, the bulk stays at its place, and is tried again later.
        """
        if tried is None:
            return self.advance(BulkLook(self.at_end, pause=_LONG_PAUSE), Ended(last_error=error))
        look = BulkLook(self.at_end, (tried,), last=tried)
        return self.advance(look, Ended(last_error=f"{tried.process_id}: {error}"))


class BulkRound(NamedTuple):
    """The result of one round: the bulk after it, and how much of each count is new."""

    bulk: HeldBulk
    new: dict[str, int]


def _settled(bulk: HeldBulk) -> HeldBulk:
    """Return the bulk with its end, if nothing is left to begin or under way."""
    if bulk.under_way:
        # A round that comes before the pace allows a repair only counts ended repairs.
        return replace(bulk, next_at=min(bulk.next_at, bulk.now + _SEEN_WITHIN))
    if bulk.status is BulkStatus.STOPPING:
        return replace(bulk, status=BulkStatus.STOPPED, ended_at=bulk.now)
    if bulk.at_end:
        return replace(bulk, status=BulkStatus.FINISHED, ended_at=bulk.now)
    return bulk


@dataclass(frozen=True, slots=True)
class BrokenGroup:
    """The broken processes of one handler and one message; its digits are shown as `#`."""

    handler: str | None
    detail: str
    processes: int
    first_broken: datetime
    last_broken: datetime
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """The processes that a bulk would repair: `processes` of `looked_at`; maybe more if `has_more`."""

    processes: int
    looked_at: int
    has_more: bool
    groups: tuple[BrokenGroup, ...]
