"""Every pair of operations on one process, stopped at every statement boundary: one after the other.

Rule: whatever the order of the statements, what is left is what one of the two serial orders leaves. What
skips the rows that others have locked may find nothing now; asked again, it finds what it should.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import UniqueViolation

from progressor.archive.records import TaskRecord
from progressor.bulks import BulkRound
from progressor.storage.admin import sweeps
from progressor.storage.admin.retention import Swept
from progressor.storage.operations import Storage
from progressor.storage.postgres import retry
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.values import (
    Claimed,
    Duplicate,
    NotPrepared,
    Reason,
    Removed,
    Saved,
    Zombie,
)
from tests.conftest import Databases
from tests.interleavings.scenes import MEETINGS, OPS, Op, Scene, Setting
from tests.interleavings.stepping import DEADLINE, Side
from tests.model.profiles import DEEP
from tests.model.world import ROWS, TABLES
from tests.support import Tables, check_invariants

_DIFFER = {"bulk_round", "sweep", "sweep_archived"}


def _pairs() -> Iterator[Any]:
    """Every pair in every scene in which both can be asked for; in the quick profile, in one of them.

    A round of a bulk does another thing in each, and so does a walk.
    """
    seen = set()
    for scene, (_, names) in MEETINGS.items():
        for pair in itertools.combinations_with_replacement(names.split(), 2):
            # A namespace has one policy, and where nothing is and nothing begins, nothing happens.
            alike = pair[0] != pair[1] and all(OPS[name].on_zombie for name in pair)
            idle = scene == "absent" and not any(name.startswith(("init", "put")) for name in pair)
            is_known = not DEEP and _DIFFER.isdisjoint(pair) and frozenset(pair) in seen
            if alike or idle or is_known:
                continue
            seen.add(frozenset(pair))
            yield pytest.param(scene, *pair, id="-".join((scene, *pair)))


Rows = dict[str, list[tuple[Any, ...]]]

# What was seen, and what for naught, depends on the order; what was done does not.
_BULKS = {
    "bulk_repairs": "SELECT process_no, task_id FROM bulk_repairs",
    "bulks": "SELECT NULL, status, begun, repaired, refused, failed, removed FROM bulks",
}
_SWEPT = {
    "swept": "SELECT process_no, first_event_id FROM processes WHERE first_event_id IS NOT NULL",
}
_ARGS = {
    "args": "SELECT process_no, task_id, args FROM tasks WHERE task_type NOT IN ('timeout', 'remove')",
}
# Tasks and events are noted when they are deleted.
_NOTED = """
CREATE SCHEMA gone;
CREATE TABLE gone.rows (kind text, number bigint);
CREATE FUNCTION gone.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gone.rows VALUES (TG_ARGV[0], (to_jsonb(OLD) ->> TG_ARGV[1])::bigint);
    RETURN NULL;
END $$;
CREATE TRIGGER gone AFTER DELETE ON tasks FOR EACH ROW EXECUTE FUNCTION gone.note('task', 'task_id');
CREATE TRIGGER gone AFTER DELETE ON events FOR EACH ROW EXECUTE FUNCTION gone.note('event', 'event_id');
"""
# Beyond what the sides are given: drawn by a round of a bulk.
_LARGE = 2**32


class Left(NamedTuple):
    """What two operations answered, the rows they left, and the rows once those that skip came again."""

    answers: tuple[Any, ...]
    rows: Rows
    again: Rows


class Arena:
    """A database in which two operations meet, again and again."""

    def __init__(self, dsn: str, runner: asyncio.Runner) -> None:
        self.dsn, self._runner = dsn, runner
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._tables = Tables(self._connection)
        self._monitor = runner.run(psycopg.AsyncConnection.connect(dsn, autocommit=True))
        self._sides = (Side(dsn, self._monitor), Side(dsn, self._monitor))
        self._connections = SessionPool(dsn, limit=1)
        self._storage = Storage(self._connections, patience=timedelta(seconds=30))
        self._connection.execute(_NOTED)
        self._examined: set[str] = set()
        self._meetings = 0

    def close(self) -> None:
        self._connection.close()
        self._runner.run(self._monitor.close())
        for connections in (*self._sides, self._connections):
            self._runner.run(connections.close())

    def meet(self, scene: str, names: tuple[str, str], order: str, *stops: int | None) -> Left | None:
        """Let the sides go on in turns, beginning with the one that `order` names first, each by a number
        of statements (None: to its end, or until it waits for the other); then both to their ends.

        None if the first side ends before its first stop.
        """
        ops = tuple(OPS[name] for name in names)
        self._empty(next((op.on_zombie for op in ops if op.on_zombie), "error"))
        return self._runner.run(self._meet(MEETINGS[scene][0], ops, order, stops))

    def _empty(self, on_zombie: str) -> None:
        self._meetings += 1
        if self._meetings % 500 == 0:
            self._connection.execute(
                b"TRUNCATE " + b", ".join(name.encode() for name in (*TABLES, *_BULKS))
            )
        with self._connection.pipeline():
            for name in (*TABLES, *_BULKS):
                self._connection.execute(b"DELETE FROM " + name.encode())
            self._connection.execute("DELETE FROM gone.rows")
            # Its number stands in the keys of the repairs that it begins.
            self._connection.execute("SELECT setval('bulks_bulk_id_seq', 1, FALSE)")
        self._tables.set_namespace(on_zombie=on_zombie)
        self._tables.set_collector()

    async def _meet(
        self, setting: Setting, ops: tuple[Op, ...], order: str, stops: tuple[int | None, ...]
    ) -> Left | None:
        scene = await setting(self._storage)
        acts = [partial(op.act, scene=scene, side=place) for place, op in enumerate(ops, start=1)]
        turns = self._sides if order == "AB" else self._sides[::-1]
        try:
            for side, act in zip(self._sides, acts, strict=True):
                side.begin(act)
            await turns[0].run(stops[0])
            if turns[0].has_ended and stops[0] is not None:
                return None
            for side, stop in zip(itertools.cycle(turns[::-1]), stops[1:], strict=False):
                await side.run(stop)
            await self._end(turns)
        finally:
            for side in self._sides:
                await side.abandon()
        answers = tuple(_outline(side.result()) for side in self._sides)
        rows = again = self._rows()
        if any(op.skips for op in ops):
            for op, act in zip(ops, acts, strict=True):
                if op.skips:
                    await act(self._storage)
            again = self._rows()
        if any(op.archives for op in ops):
            assert self._unarchived(scene) == set()
        return Left(answers, rows, again)

    async def _end(self, sides: Sequence[Side]) -> None:
        # Were each to wait for the other, PostgreSQL would refuse one of them.
        async with asyncio.timeout(DEADLINE):
            while not all(side.has_ended for side in sides):
                for side in sides:
                    await side.run()
        refusals = [error for side in sides for error in side.refusals]
        # Two requests with one key: the later one is repeated, and finds the task of the earlier one.
        assert [each for each in refusals if not isinstance(each, UniqueViolation)] == []

    def examine(self, left: Left) -> None:
        """Let the doctor see what is left, unless it has seen just that before."""
        rows = repr(left.again)
        if rows not in self._examined:
            check_invariants(self.dsn)
            self._examined.add(rows)

    def _unarchived(self, scene: Scene) -> set[tuple[str, int]]:
        """What was deleted, and is not in the archive."""
        archived = {
            (each.kind, each.task_id if isinstance(each, TaskRecord) else each.event_id)
            for each in scene.archive
        }
        return set(self._connection.execute("SELECT kind, number FROM gone.rows").fetchall()) - archived

    def _rows(self) -> Rows:
        """All rows; numbers and ids are places among all of them: a sequence does not go back."""
        with self._connection.pipeline():
            cursors = {
                name: self._connection.execute(text.encode())
                for name, text in (ROWS | _BULKS | _SWEPT | _ARGS).items()
            }
            found = {name: cursor.fetchall() for name, cursor in cursors.items()}
        numbers = _places(row[0] for name in ("processes", "removed") for row in found[name])
        ids = _places(row[1] for row in found["tasks"])
        column = {
            "processes": 10,
            "tasks": 1,
            "schedule": 1,
            "running": 1,
            "events": 2,
            "bulk_repairs": 1,
            "args": 1,
        }

        def placed(name: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
            number, *rest = row
            if name in column:
                rest[column[name] - 1] = ids.get(rest[column[name] - 1])
            if name == "tasks":
                rest = [None if isinstance(each, int) and each > _LARGE else each for each in rest]
            # Of a bulk, or of a repair whose process is gone, there is none.
            return numbers.get(number), *rest

        return {
            name: sorted((placed(name, row) for row in rows), key=lambda row: row[:4])
            for name, rows in found.items()
        }


def _places(found: Iterable[int]) -> dict[int, int]:
    return {each: place for place, each in enumerate(sorted(found))}


def _outline(answer: Any) -> Any:
    """An answer without ids and times, which the rows have."""
    match answer:
        case list():
            return [_outline(each) for each in answer]
        case NotPrepared():
            return answer
        case Duplicate():
            return "duplicate", answer.answer
        case Saved(_, continuation, due, cancelled):
            return "saved", continuation and continuation.task_type, due, len(cancelled)
        case Claimed(task, process):
            return "claimed", task.task_type, process.status
        case Zombie(task_type=task_type, disposition=disposition, cancelled=cancelled):
            return "zombie", task_type, disposition, len(cancelled)
        case BulkRound(_, new):
            return "round", new["begun"], new["repaired"], new["failed"], new["removed"]
        case Swept(tasks=tasks, events=events):
            return "swept", tasks, events
        case Removed(existed, cancelled):
            return "removed", existed, len(cancelled)
        case _:
            return answer if isinstance(answer, bool) else type(answer).__name__


@pytest.fixture(scope="module")
def arena(databases: Databases, template: str) -> Iterator[Arena]:
    """One database for all meetings."""
    name = databases.make(template)
    # The disk is not what is examined here.
    dsn = make_conninfo(databases.dsn(name), options="-c synchronous_commit=off")
    with asyncio.Runner() as runner:
        made = Arena(dsn, runner)
        yield made
        made.close()
    databases.drop(name)


@pytest.mark.share(3)
@pytest.mark.parametrize(("scene", "first", "second"), list(_pairs()))
def test_one_after_the_other(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, scene: str, first: str, second: str
) -> None:
    """What two operations at once leave is what they leave one after the other."""
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.0)
    # A walk that waits is stopped by nothing but the other side.
    monkeypatch.setattr(sweeps, "_PATIENCE", "30s")
    names = first, second
    serial = []
    for order, *ends in _serial(OPS[first].middle, OPS[second].middle):
        if (left := arena.meet(scene, names, order, *ends, None)) is not None:
            arena.examine(left)
            serial.append(left)
    for order in ("AB", "BA"):
        for boundary in itertools.count(1):
            found = [arena.meet(scene, names, order, boundary, *stops) for stops in _stops(scene)]
            if None in found:
                break
            for left in filter(None, found):
                if left[:2] in [each[:2] for each in serial]:
                    continue
                # Not as any order would have it: then one has skipped what the other held.
                assert OPS[first].skips or OPS[second].skips, (order, boundary, left, serial)
                assert left.again in [each.again for each in serial], (order, boundary, left, serial)


def _serial(first: int | None, second: int | None) -> Iterator[tuple[Any, ...]]:
    """One after the other; what is two transactions may have the other in the middle, or the half of it."""
    for order, middle, other in (("AB", first, second), ("BA", second, first)):
        yield order, None
        if middle is not None:
            yield order, middle
            if other is not None:
                yield order, middle, other


def _stops(scene: str) -> Iterator[tuple[int | None, ...]]:
    """How the second side goes on: as far as it can; in the deep profile, also from stop to stop."""
    yield (None,)
    if DEEP:
        for second in range(1, 5):
            yield (second,)
            if scene == "absent":
                yield from ((second, 1, third) for third in (None, *range(1, 5)))


def test_a_call_is_not_lost_to_a_start(arena: Arena) -> None:
    """A call that looked for its process before the start, and found it after, is refused.

    It holds no lock on that process: accepted, it would wait behind an init that ends without seeing it.
    """
    left = arena.meet("absent", ("call", "init_and_save"), "AB", 1, 4, 1, None)
    assert left is not None
    check_invariants(arena.dsn)
    assert left.answers[0] == NotPrepared(Reason.NOT_FOUND)


def test_a_removal_of_nothing_removes_nothing(arena: Arena) -> None:
    """What was started after a removal had looked for it stays: the removal said that there was nothing."""
    left = arena.meet("absent", ("remove", "put"), "AB", 1, None)
    assert left is not None
    assert left.answers == (("removed", False, 0), True)
    assert len(left.rows["processes"]) == 1
