"""Rounds of a walk: look at the next processes, lock those of which something is old, delete that.

Rule: a look is bounded in rows and comes before the locks. A round goes on behind what the last one has
seen, in the middle of a process too: rows that were deleted are not read again before they are vacuumed.
What a step holds is left to the next walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from progressor.storage.postgres.arrays import bigints
from progressor.storage.postgres.pipeline import Session
from progressor.storage.statements import Params, Row

# One round, at most: what it looks at of processes and tasks, what it locks, what it deletes of each table.
_LOOKS, _READS, _HELD, _ROWS, _BYTES = 500, 2_000, 100, 1000, 4 << 20
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

    @property
    def is_empty(self) -> bool:
        return self.first_task is None and self.cut is None


class _Stop(NamedTuple):
    """The end of a look: with this process of those it looked at, behind this task of it; None: wholly."""

    place: int
    behind: int | None = None


async def run_round(session: Session, walk: Walk, bounds: Params) -> Round:
    """Delete what is old of the next processes, and return how far the walk came."""
    at, no = walk.cursor_at or _LONG_AGO, walk.cursor_no
    look = {"namespace_no": walk.namespace_no, "cursor_at": at, "cursor_no": no, "looks": _LOOKS}
    rows = (await session.transact({"look_sweep": look}))["look_sweep"]
    seen = [_Old(row, behind=_behind(walk, row)) for row in rows]
    stop, reads = await _look(session, seen, bounds)
    old = [each for each in seen[: stop.place + 1] if not each.is_empty]
    held = await _lock(session, old)
    tasks, events = await _delete(session, [each for each in old if each.row["process_no"] in held], bounds)
    done = Round(walk, tasks, events, len(seen) + reads, passed_by=len(old) - len(held))
    if stop.behind is None and stop.place == len(seen) - 1 and len(seen) < _LOOKS:
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
        seen[free[row["process_no"]]].cut = row["cut"]
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
        "rows": _ROWS,
        "bytes": _BYTES,
    }


def _events_of(free: Sequence[_Old], bounds: Params) -> Params:
    kept = bounds["events_last"] or 0
    return {
        "events_before": bounds["events_before"],
        "process_no": bigints([each.row["process_no"] for each in free]),
        "first": bigints([each.row["first_event_id"] for each in free]),
        "until": bigints([each.row["last_event_id"] - kept for each in free]),
        "rows": _ROWS,
        "bytes": _BYTES,
    }


async def _lock(session: Session, old: Sequence[_Old]) -> set[int]:
    """Lock these processes but those that others hold; return which are locked."""
    if not old:
        return set()
    numbers = bigints([each.row["process_no"] for each in old])
    locked = (await session.transact({"lock_swept": {"process_no": numbers}}))["lock_swept"]
    return {row["process_no"] for row in locked}


async def _delete(session: Session, held: Sequence[_Old], bounds: Params) -> tuple[int, int]:
    """Delete what is old of locked processes; return how many tasks and events."""
    with_tasks = [each for each in held if each.first_task is not None]
    with_events = [each for each in held if each.cut is not None]
    sweeps = {}
    if with_tasks:
        sweeps["sweep_tasks"] = {
            **bounds,
            "process_no": bigints([each.row["process_no"] for each in with_tasks]),
            "first": bigints([each.first_task for each in with_tasks]),
            "last": bigints([each.last_task for each in with_tasks]),
        }
    if with_events:
        sweeps["sweep_events"] = {
            "process_no": bigints([each.row["process_no"] for each in with_events]),
            "first": bigints([each.row["first_event_id"] for each in with_events]),
            "cut": bigints([each.cut for each in with_events]),
        }
    found = await session.transact(sweeps) if sweeps else {}
    tasks, events = (
        sum(row["deleted"] for row in found.get(name, ())) for name in ("sweep_tasks", "sweep_events")
    )
    return tasks, events
