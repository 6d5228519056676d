"""Rounds of a walk: look at the next processes, lock those of which something is old, delete that.

Rule: a look is bounded in rows and comes before the locks. A round goes on behind what the last one has
seen, in the middle of a process too: rows that were deleted are not read again before they are vacuumed.
A round waits for its first process alone, briefly and with no other one locked. It ends before the next
that a step holds, which is then the first of the next round. It is small where the walk is slow: ten short
rounds a second hold up a step beside them for less than a long one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from progressor.storage.postgres.arrays import bigints, timestamps
from progressor.storage.postgres.pipeline import Session
from progressor.storage.statements import Params, Row, Transaction

# One round, at most: what it looks at of processes and tasks, what it locks, what it deletes of each table.
_LOOKS, _READS, _HELD, _ROWS, _BYTES = 500, 2_000, 100, 1000, 4 << 20
# A round deletes, and looks at processes for, a tenth of what a walk deletes in a second, but so many rows.
_PART, _LEAST = 0.1, 100
# How long a round waits for its first process: through a slow commit. A process that is held for longer is
# left to the next walk. Below a second, at which PostgreSQL looks for a deadlock.
_PATIENCE = "500ms"
_LONG_AGO = datetime.fromisoformat("0001-01-02T00:00:00+00:00")
_BEHIND_ALL_TASKS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk as its row has it, locked.

    It goes on behind a process, in the order of their creation; behind a task of the next one if that has
    the next number.
    """

    namespace_no: int
    namespace: str
    now: datetime
    began_at: datetime | None
    cursor_at: datetime | None
    cursor_no: int
    cursor_task: int
    tasks_deleted: int
    events_deleted: int


class Round(NamedTuple):
    """The result of a round, and the walk behind it; `reads`: the processes and tasks that it looked at."""

    walk: Walk
    tasks: int = 0
    events: int = 0
    reads: int = 0
    passed_by: int = 0
    is_over: bool = False


@dataclass(slots=True)
class _Old:
    """A process, and what is old of it: tasks from the first to the last, events up to `cut`."""

    row: Row
    behind: int = 0
    first_task: int | None = None
    last_task: int | None = None
    cut: int | None = None
    cut_at: datetime | None = None

    @property
    def first_event(self) -> int:
        first: int = self.row["first_event_id"]
        return first

    @property
    def is_empty(self) -> bool:
        return self.first_task is None and self.cut is None


class _Stop(NamedTuple):
    """The end of a look: with this process of those it looked at, behind this task of it; None: wholly."""

    place: int
    behind: int | None = None


@dataclass(frozen=True, slots=True)
class OldRows:
    """The next processes of a walk, with what is old of them, up to where a bound ended the look."""

    walk: Walk
    seen: Sequence[_Old]
    stop: _Stop
    reads: int
    are_all: bool
    """True if there is no process behind those that it has seen."""

    @property
    def old(self) -> list[int]:
        """The places of those of which something is old."""
        seen = self.seen[: self.stop.place + 1]
        return [place for place, each in enumerate(seen) if not each.is_empty]

    @property
    def is_last(self) -> bool:
        """True if the walk has no more processes."""
        is_whole = self.stop.behind is None and self.stop.place == len(self.seen) - 1
        return is_whole and self.are_all

    @property
    def next_looks(self) -> int:
        """So many processes are to be looked at next: where many are old, no more than can be locked."""
        return _HELD if len(self.old) >= _HELD // 2 else _LOOKS

    @property
    def behind(self) -> Walk:
        """The walk behind all that it has seen."""
        return _gone_on(self.walk, self.seen[self.stop.place], self.stop.behind) if self.seen else self.walk

    def old_tasks(self) -> Params:
        """Return the processes with old tasks, and the first and the last of each, as parameters."""
        return _ranges([each for each in self._are_old if each.first_task is not None], _TASKS)

    def old_events(self) -> Params:
        """Return the processes with old events, and the first and the last of each, as parameters."""
        return _ranges([each for each in self._are_old if each.cut is not None], _EVENTS)

    @property
    def _are_old(self) -> list[_Old]:
        return [self.seen[place] for place in self.old]


async def run_round(session: Session, walk: Walk, bounds: Params, *, rate: float, waits: bool) -> Round:
    """Delete what is old of the next processes, and return how far the walk came.

    `rate` is that of the walk, in rows a second. Without `waits` it passes by the first process if a step
    holds it. Else LockNotAvailable may come of it, which ends the transaction.
    """
    found = await look(session, walk, bounds, most=round(min(_ROWS, max(_LEAST, rate * _PART))))
    return await delete(session, found, bounds, waits=waits)


async def look(
    session: Session, walk: Walk, bounds: Params, *, most: int = _ROWS, looks: int | None = None
) -> OldRows:
    """Look at the next processes of a walk, `looks` at most, and lock nothing.

    Find at most so many rows of each table.
    """
    at, no = walk.cursor_at or _LONG_AGO, walk.cursor_no
    looks = min(_LOOKS, most, most if looks is None else looks)
    page = {"namespace_no": walk.namespace_no, "cursor_at": at, "cursor_no": no, "looks": looks}
    rows = (await session.transact({"look_sweep": page}))["look_sweep"]
    seen = [_Old(row, behind=_behind(walk, row)) for row in rows]
    stop, reads = await _look(session, seen, {**bounds, "rows": most, "bytes": _BYTES})
    return OldRows(walk, seen, stop, len(seen) + reads, are_all=len(seen) < looks)


async def delete(
    session: Session, found: OldRows, bounds: Params, *, waits: bool, only: Sequence[int] | None = None
) -> Round:
    """Delete what a look has found, and return how far the walk came.

    `only` are the tasks that may go, of an archive that has them. Then the round goes on past what it
    missed, as what is behind that is archived too.
    """
    walk, seen, stop = found.walk, found.seen, found.stop
    old = found.old
    held = await _lock(session, [seen[place] for place in old], waits=waits)
    missed = [place for place in old[1:] if seen[place].row["process_no"] not in held]
    if missed and only is None:
        stop = _Stop(missed[0] - 1)
    old = [place for place in old if place <= stop.place]
    swept = [seen[place] for place in old if seen[place].row["process_no"] in held]
    tasks, events = await _delete(session, swept, bounds, only)
    done = Round(walk, tasks, events, found.reads, passed_by=len(old) - len(swept))
    if stop == found.stop and found.is_last:
        return done._replace(is_over=True)
    last = seen[stop.place]
    is_passed_by = not last.is_empty and last.row["process_no"] not in held
    return done._replace(walk=_gone_on(walk, last, None if is_passed_by else stop.behind))


def _behind(walk: Walk, row: Row) -> int:
    is_next = (row["created_at"], row["process_no"]) == (walk.cursor_at, walk.cursor_no + 1)
    return walk.cursor_task if is_next else 0


def _gone_on(walk: Walk, last: _Old, behind: int | None) -> Walk:
    at, no = last.row["created_at"], last.row["process_no"]
    if behind is None:
        return replace(walk, cursor_at=at, cursor_no=no, cursor_task=0)
    return replace(walk, cursor_at=at, cursor_no=no - 1, cursor_task=behind)


async def _look(session: Session, seen: Sequence[_Old], bounds: Params) -> tuple[_Stop, int]:
    """Note of each process what is old; return where a bound ended the look, and how many tasks it read."""
    free = {each.row["process_no"]: place for place, each in enumerate(seen) if not each.row["is_in_bulk"]}
    stops = [_Stop(len(seen) - 1)]
    looks = {}
    if bounds["tasks_before"] is not None:
        looks["look_tasks"] = _tasks_of([seen[place] for place in free.values()], bounds)
    if bounds["events_before"] is not None or bounds["events_last"] is not None:
        looks["look_events"] = _events_of([seen[place] for place in free.values()], bounds)
    found = await session.transact(looks) if free and looks else {}
    tasks, events = found.get("look_tasks", []), found.get("look_events", [])
    for row in tasks:
        process = seen[free[row["process_no"]]]
        process.first_task, process.last_task = row["first_old"], row["last_old"]
    for row in events:
        process = seen[free[row["process_no"]]]
        process.cut, process.cut_at = row["cut"], row["cut_at"]
    if tasks and tasks[-1]["is_cut"]:
        stops.append(_Stop(free[tasks[-1]["process_no"]], tasks[-1]["last_read"]))
    if events and events[-1]["is_cut"]:
        stops.append(_Stop(free[events[-1]["process_no"]], _BEHIND_ALL_TASKS))
    stops += [
        _Stop(place) for place in [p for p, each in enumerate(seen) if not each.is_empty][_HELD - 1 :][:1]
    ]
    first = min(stop.place for stop in stops)
    behind = [stop.behind for stop in stops if stop.place == first and stop.behind is not None]
    return _Stop(first, min(behind, default=None)), sum(row["reads"] for row in tasks)


def _tasks_of(free: Sequence[_Old], bounds: Params) -> Params:
    return {
        **bounds,
        "process_no": bigints([each.row["process_no"] for each in free]),
        "corrupted_by": bigints([each.row["corrupted_by"] for each in free]),
        "behind": bigints([each.behind for each in free]),
        "reads": _READS,
    }


def _events_of(free: Sequence[_Old], bounds: Params) -> Params:
    kept = bounds["events_last"] or 0
    return {
        **{name: bounds[name] for name in ("events_before", "rows", "bytes")},
        "process_no": bigints([each.row["process_no"] for each in free]),
        "first": bigints([each.row["first_event_id"] for each in free]),
        "until": bigints([each.row["last_event_id"] - kept for each in free]),
    }


async def _lock(session: Session, old: Sequence[_Old], *, waits: bool) -> set[int]:
    """Lock these processes but those that others hold, and wait for the first; return which are locked."""
    if not old:
        return set()
    numbers = [each.row["process_no"] for each in old]
    first: Transaction = {
        "wait_briefly": {"lock_timeout": _PATIENCE},
        "lock": {"process_no": bigints(numbers[:1])},
    }
    others: Transaction = {"lock_swept": {"process_no": bigints(numbers)}}
    locked = (await session.transact({**first, **others} if waits else others))["lock_swept"]
    return {row["process_no"] for row in locked}


_TASKS, _EVENTS = ("first_task", "last_task"), ("first_event", "cut")


def _ranges(old: Sequence[_Old], names: tuple[str, str]) -> Params:
    """Return these processes, and of each the first and the last that are old, as parameters."""
    first, last = names
    return {
        "process_no": bigints([each.row["process_no"] for each in old]),
        "first": bigints([getattr(each, first) for each in old]),
        "last": bigints([getattr(each, last) for each in old]),
    }


async def _delete(
    session: Session, held: Sequence[_Old], bounds: Params, only: Sequence[int] | None
) -> tuple[int, int]:
    """Delete what is old of locked processes; return how many tasks and events."""
    with_tasks = [each for each in held if each.first_task is not None]
    with_events = [each for each in held if each.cut is not None]
    sweeps: dict[str, Params] = {}
    if with_tasks:
        chosen = None if only is None else bigints(only)
        sweeps["sweep_tasks"] = {**bounds, **_ranges(with_tasks, _TASKS), "only": chosen}
    if with_events:
        last_at = timestamps([each.cut_at for each in with_events])
        sweeps["sweep_events"] = {**_ranges(with_events, _EVENTS), "last_at": last_at}
    found = await session.transact(sweeps) if sweeps else {}
    tasks, events = (
        sum(row["deleted"] for row in found.get(name, ())) for name in ("sweep_tasks", "sweep_events")
    )
    return tasks, events
