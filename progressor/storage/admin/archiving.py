"""Walks of namespaces with an archive: what is old is read, archived and verified, and only then deleted.

Rule: nothing is deleted that the archive does not have: tasks go by their numbers, events up to the last
that was read. While it is archived nothing is locked. The walk is claimed for a time by its next round;
whoever finds it moved meanwhile deletes nothing. What was archived and not deleted is archived again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from progressor.archive.records import EventRecord, TaskRecord
from progressor.config import Retention
from progressor.storage.admin.retention import (
    PUT_OFF,
    Retentions,
    Swept,
    bounds_of,
    note_of,
    policy_of,
    walk_of,
)
from progressor.storage.admin.sweeps import OldRows, Round, Walk, delete, look
from progressor.storage.postgres.pipeline import Session
from progressor.storage.statements import Params, Row

Archived = TaskRecord | EventRecord

# One part of an archive, at most, and a look more: it is in memory several times while it is written and
# read back.
_ROWS, _BYTES, _LOOKS = 20_000, 16 << 20, 40


class Batch(NamedTuple):
    """The rows that are to be archived together: of processes that were made from `first` to `last`."""

    namespace: str
    first: datetime
    last: datetime
    records: list[Archived]


Keep = Callable[[Batch], Awaitable[None]]
"""Writes a batch into an archive and reads it back; raises if that fails."""


class _Claim(NamedTuple):
    walk: Walk
    policy: Retention
    bounds: Params
    is_first: bool
    fault: str | None


class _Piece(NamedTuple):
    """The rows that a look has found, and the numbers of the tasks among them that are archived."""

    found: OldRows
    tasks: list[int]
    records: list[Archived]
    size: int
    """Bytes of their values."""


def _size_of(row: Row) -> int:
    return sum(len(value) for value in row.values() if isinstance(value, bytes | str))


class Archiving(Retentions):
    """The operation of walks into an archive."""

    async def sweep_archived(self, keep: Keep, *, rate: float, now: datetime | None = None) -> Swept | None:
        """Archive and delete the next part of the walk that is due; None if none is due.

        `keep` is given what will be deleted. If it raises, nothing is deleted, and the part is due again
        in some minutes.
        """
        claim = await self._begin_part(now)
        if claim is None:
            return None
        pieces = [] if claim.policy.is_for_ever else await self._pieces(claim)
        records = [record for piece in pieces for record in piece.records]
        if records:
            seen = [row.row["created_at"] for piece in pieces for row in piece.found.seen]
            await keep(Batch(claim.walk.namespace, min(seen), max(seen), records))
        return await self._delete_pieces(claim, pieces, rate)

    async def _begin_part(self, now: datetime | None) -> _Claim | None:
        """Begin the walk that is due, or go on with it; nobody else does for some minutes."""

        async def attempt(session: Session, _again: bool) -> _Claim | None:
            async with session.transaction():
                due: Params = {"now": now, "namespace": None, "archive": True}
                first: dict[str, Params] = {"enrol_namespaces": {"now": now}, "mark_tasks": {"now": now}}
                found = (await session.transact({**first, "lock_sweep": due}))["lock_sweep"]
                if not found:
                    return None
                claim = _claim_of(found[0])
                note = note_of(Round(claim.walk), claim.policy, claim.is_first, rate=1.0)
                claimed_until = {"next_at": claim.walk.now + PUT_OFF}
                await session.transact({"note_sweep": {**note, **claimed_until}})
                return claim

        return await self._run("sweep", attempt)

    async def _pieces(self, claim: _Claim) -> list[_Piece]:
        """Read what is old of the next processes, and lock nothing."""
        pieces: list[_Piece] = []
        walk, looks, rows, size = claim.walk, None, 0, 0
        while len(pieces) < _LOOKS and rows < _ROWS and size < _BYTES:
            piece = await self._piece(walk, claim.bounds, looks)
            pieces.append(piece)
            rows += len(piece.records)
            size += piece.size
            # The next events of one process are read once these are gone.
            if piece.found.is_last or piece.found.stop.behind is not None:
                break
            walk, looks = piece.found.behind, piece.found.next_looks
        return pieces

    async def _piece(self, walk: Walk, bounds: Params, looks: int | None) -> _Piece:
        async def attempt(session: Session, _again: bool) -> _Piece:
            found = await look(session, walk, bounds, looks=looks)
            if not found.old:
                return _Piece(found, [], [], 0)
            reads = {"read_tasks": {**bounds, **found.old_tasks()}, "read_events": found.old_events()}
            rows = await session.transact(reads)
            its = {"namespace": walk.namespace}
            tasks = [TaskRecord(**its, **row) for row in rows["read_tasks"]]
            events = [EventRecord(**its, **row) for row in rows["read_events"]]
            size = sum(map(_size_of, (*rows["read_tasks"], *rows["read_events"])))
            return _Piece(found, [task.task_id for task in tasks], [*tasks, *events], size)

        return await self._run("sweep", attempt)

    async def _delete_pieces(self, claim: _Claim, pieces: list[_Piece], rate: float) -> Swept:
        """Delete what is archived, a piece in a transaction; stop where another sweeper has gone on."""
        so_far = Round(claim.walk, is_over=not pieces)
        todo: Sequence[_Piece | None] = pieces or [None]
        for place, piece in enumerate(todo):
            done = await self._delete_piece(
                claim, so_far, piece, rate, is_first=claim.is_first and not place
            )
            if done is None:
                break
            so_far = done
        return Swept(claim.walk.namespace, so_far.tasks, so_far.events, so_far.is_over, claim.fault)

    async def _delete_piece(
        self, claim: _Claim, so_far: Round, piece: _Piece | None, rate: float, *, is_first: bool
    ) -> Round | None:
        """Delete one piece, and return the round with it; None if another sweeper has gone on."""
        walk = so_far.walk

        async def attempt(session: Session, _again: bool) -> Round | None:
            async with session.transaction():
                if not (await session.transact({"lock_walk": _place_of(walk)}))["lock_walk"]:
                    return None
                done = Round(walk, is_over=True)
                if piece is not None:
                    found = replace(piece.found, walk=walk)
                    done = await delete(session, found, claim.bounds, waits=False, only=piece.tasks)
                # The pace is that of all pieces; what a walk has deleted is counted from its begin.
                whole = done._replace(
                    walk=replace(
                        done.walk,
                        tasks_deleted=claim.walk.tasks_deleted,
                        events_deleted=claim.walk.events_deleted,
                    ),
                    tasks=so_far.tasks + done.tasks,
                    events=so_far.events + done.events,
                    reads=so_far.reads + done.reads,
                )
                note = note_of(whole, claim.policy, is_first, rate)
                await session.transact({"note_sweep": note})
                return whole

        return await self._run("sweep", attempt)


def _claim_of(row: Row) -> _Claim:
    (policy, fault), (walk, is_first) = policy_of(row), walk_of(row)
    return _Claim(walk, policy, bounds_of(policy, walk.began_at or walk.now), is_first, fault)


def _place_of(walk: Walk) -> Params:
    return {
        "namespace_no": walk.namespace_no,
        "began_at": walk.began_at,
        "cursor_at": walk.cursor_at,
        "cursor_no": walk.cursor_no,
        "cursor_task": walk.cursor_task,
    }
