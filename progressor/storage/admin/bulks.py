"""Bulks: repairs of all broken processes that match, a round at a time.

Rule: a round is one transaction. It holds the row of its bulk, so no two run one bulk at once and a dead
runner loses it; what it begins, how far it came and what it counted commit together, so nothing is
repeated or forgotten wherever it dies. A process is repaired only if it is, behind its own lock, still
broken as it was when the bulk was made; and under a key of bulk and process, so never twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from progressor.bulks import BrokenGroup, Bulk, BulkPreview, BulkStatus
from progressor.errors import InvalidRequest
from progressor.model import ProcessStatus, TaskStatus, TaskType
from progressor.rights import like
from progressor.storage.params import request_columns
from progressor.storage.postgres.arrays import bigints, texts
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.retry import damage, one_of
from progressor.storage.postgres.sqlstates import BatchRefused
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.statements import Params, Results, Row, Transaction
from progressor.storage.values import NewBulk, Request

# One round: the most broken processes it looks at, and the most repairs it begins.
_LOOKS, _MOST = 1000, 200
# Repairs of a bulk that are under way at once; so many may still run after it was stopped.
MOST_UNDER_WAY = 1000
# Broken processes that are looked at to count what is left, and for a preview; groups in a preview.
_LEFT, _PREVIEWED, _GROUPS = 10_000, 100_000, 50
# The most lost time that a bulk makes up for after it was held up.
_BURST = timedelta(seconds=1)
# The pause between two rounds of a bulk that has begun repairs or waits for their ends; and after a round
# that failed.
_PAUSE, _LONG_PAUSE = timedelta(milliseconds=200), timedelta(seconds=5)
# The time within which the end of a repair is seen, however slow the pace.
_SEEN_WITHIN = timedelta(seconds=5)
_COUNTS = ("looked_at", "passed_by", "begun", "repaired", "refused", "failed", "removed")


class Made(NamedTuple):
    """The bulk of a key; `is_another` if the key was used for another request."""

    bulk: Bulk
    is_another: bool


class BulkRound(NamedTuple):
    """The result of one round: the bulk after it, and how much of each count is new."""

    bulk: Bulk
    new: dict[str, int]


class RunningBulks(NamedTuple):
    """The bulks of a namespace that have not ended, and the longest time for which one has stood still.

    A rest that the pace of a bulk demands does not count.
    """

    namespace: str
    bulks: int
    still: timedelta


@dataclass(frozen=True, slots=True)
class _Looked:
    """The processes that a round is to repair, how many it looked at, and where the next goes on."""

    chosen: Sequence[Row]
    count: int
    cursor_at: datetime | None
    cursor_no: int
    at_end: bool


class _Tried:
    """A round that failed: its bulk, the place of the bulk, and the processes that it was to repair."""

    def __init__(self) -> None:
        self.chosen: Sequence[Row] = ()
        self._place: tuple[Any, ...] = ()

    def begin(self, bulk: Row) -> None:
        self.chosen, self._place = (), self._place_of(bulk)

    def is_at(self, bulk: Row) -> bool:
        """Return whether it is the same bulk, still at the same place."""
        return self._place == self._place_of(bulk)

    @staticmethod
    def _place_of(bulk: Row) -> tuple[Any, ...]:
        return bulk["bulk_id"], bulk["cursor_at"], bulk["cursor_no"]


class Bulks(Transactions):
    """The operations on bulks."""

    async def make_bulk(self, item: NewBulk, *, now: datetime | None = None) -> Made:
        """Store a bulk, whose bound is now, or find the one that was made with its key."""
        params = {**item._asdict(), "now": now}
        statements = {"make_bulk": params, "bulk_of_key": params}
        told = await self._transact("make_bulk", statements, patience=self._patience)
        (row,) = told["bulk_of_key"]
        return Made(_bulk_of(row), bytes(row["bulk_hash"]) != item.bulk_hash)

    async def bulks(self, *, limit: int, namespaces: Sequence[str] | None = None) -> list[Bulk]:
        """Return the newest bulks, of the namespaces that these patterns fit.

        What is left is not counted.
        """
        patterns = None if namespaces is None else texts([like(each) for each in namespaces])
        rows = await self._rows("bulks", bulk_id=None, limit=limit, namespaces=patterns)
        return [_bulk_of(row) for row in rows]

    async def bulk(self, bulk_id: int) -> Bulk | None:
        """Return a bulk, with what is left, counted up to a bound; None if there is none."""
        rows = await self._rows("bulks", bulk_id=bulk_id, limit=1, namespaces=None)
        if not rows:
            return None
        (row,) = rows
        bulk = _bulk_of(row)
        if bulk.status is not BulkStatus.RUNNING or row["at_end"]:
            return replace(bulk, left=0)
        bound = {name: row[name] for name in ("cursor_at", "cursor_no", "until_task")}
        found = await self._groups(bulk, {**bound, "until": bulk.created_at}, looks=_LEFT, groups=0)
        return replace(bulk, left=found.processes, has_more=found.has_more)

    async def preview_bulk(
        self, namespace: str, *, detail_like: str | None, handler: str | None
    ) -> BulkPreview:
        """Return a preview: the processes that a bulk with this filter would repair now."""
        wanted = {"namespace": namespace, "detail_like": detail_like, "handler": handler}
        bound = {"cursor_at": None, "cursor_no": 0, "until": None, "until_task": None}
        return await self._groups(wanted, bound, looks=_PREVIEWED, groups=_GROUPS)

    async def _groups(
        self, wanted: Bulk | dict[str, str | None], bound: dict[str, Any], *, looks: int, groups: int
    ) -> BulkPreview:
        if isinstance(wanted, Bulk):
            wanted = {name: getattr(wanted, name) for name in ("namespace", "detail_like", "handler")}
        rows = await self._rows("broken_groups", **wanted, **bound, looks=looks, groups=groups)
        looked_at: int = rows[0]["looked_at"]
        return BulkPreview(
            rows[0]["matching"],
            looked_at,
            looked_at == looks,
            tuple(_group_of(row) for row in rows if row["processes"] is not None),
        )

    async def stop_bulk(self, bulk_id: int, *, now: datetime | None = None) -> None:
        """Stop a bulk; after this returns, it begins no more repairs."""
        for row in await self._rows("bulks", bulk_id=bulk_id, namespaces=None, limit=1):
            # From here on every try is for this bulk.
            key = row["idempotency_key"]
            await self._rows("stop_bulk", bulk_id=bulk_id, idempotency_key=key, now=now)

    async def next_bulk(self, *, now: datetime | None = None) -> timedelta | None:
        """Return the time until the next round of a bulk is due; None if no bulk runs."""
        rows = await self._rows("next_bulk", now=now)
        due_in: timedelta | None = rows[0]["due_in"] if rows else None
        return due_in

    async def running_bulks(self, *, now: datetime | None = None) -> list[RunningBulks]:
        """Return the running bulks of each namespace that has any."""
        return [RunningBulks(**row) for row in await self._rows("running_bulks", now=now)]

    async def run_bulk(self, *, most: int = _MOST, now: datetime | None = None) -> BulkRound | None:
        """Run one round of a bulk that is due and that no other runner holds; None if there is none."""
        tried = _Tried()
        for room in (most, 1):
            try:
                return await self._round(partial(_one_round, tried=tried, most=room), room, now)
            except (BatchRefused, InvalidRequest) as error:
                failure = f"it cannot be repaired: {error}"
        # A process alone is passed by. If no process could even be looked at, the bulk is tried again
        # later.
        return await self._round(partial(_without, tried=tried, error=failure), 1, now)

    async def _round(
        self, carry: Callable[[Session, Row], Awaitable[BulkRound | None]], most: int, now: datetime | None
    ) -> BulkRound | None:
        async def attempt(session: Session, _again: bool) -> BulkRound | None:
            found = await session.begin({"lock_bulk": {"now": now}})
            try:
                if not found["lock_bulk"]:
                    await session.commit({})
                    return None
                return await carry(session, found["lock_bulk"][0])
            except Exception:
                await session.roll_back()
                raise

        # Any item of a batch may be the cause; a single one is given up only for damage.
        apart = one_of(most) if most > 1 else damage
        return await self._run("run_bulk", attempt, patience=self._patience, apart=apart)


async def _one_round(session: Session, bulk: Row, *, tried: _Tried, most: int) -> BulkRound:
    before = _bulk_of(bulk)
    room = min(most, _room(bulk))
    tried.begin(bulk)
    found: Results = await session.transact(_looking(bulk, room))
    _settle(bulk, found["settle_bulk"][0])
    looked = _Looked((), 0, bulk["cursor_at"], bulk["cursor_no"], bulk["at_end"])
    begun: Sequence[Row] = ()
    if "look_bulk" in found:
        looked = _looked(looked, found["look_bulk"], room)
        tried.chosen = looked.chosen
    if looked.chosen:
        begun = await _begin(session, bulk, looked.chosen)
    bulk["looked_at"] += looked.count
    bulk["passed_by"] += len(looked.chosen) - len(begun)
    bulk["begun"] += len(begun)
    under_way = [row for row in begun if not _is_repaired(row)]
    bulk["repaired"] += len(begun) - len(under_way)
    seeks = looked.count > 0 and len(looked.chosen) < room and not looked.at_end
    _go_on(bulk, looked, begun=len(begun), pause=timedelta() if seeks else _PAUSE)
    return await _note(session, before, bulk, under_way)


def _is_repaired(row: Row) -> bool:
    """Return whether the repair is done: neither a repair handler nor an init has to run."""
    return bool(row["task_status"] == TaskStatus.FINISHED and row["status"] != ProcessStatus.INIT)


async def _without(session: Session, bulk: Row, *, tried: _Tried, error: str) -> BulkRound | None:
    """Run a round that passes by the process that was tried, unless another runner went on since."""
    if not tried.is_at(bulk):
        await session.commit({})
        return None
    before = _bulk_of(bulk)
    looked = _Looked((), 0, bulk["cursor_at"], bulk["cursor_no"], at_end=False)
    if tried.chosen:
        (row,) = tried.chosen
        looked = _Looked((), row["place"], row["created_at"], row["process_no"], at_end=False)
        error = f"{row['process_id']}: {error}"
        bulk["looked_at"] += looked.count
        bulk["passed_by"] += 1
    bulk["last_error"] = error
    _go_on(bulk, looked, begun=0, pause=_PAUSE if tried.chosen else _LONG_PAUSE)
    return await _note(session, before, bulk, ())


def _looking(bulk: Row, room: int) -> Transaction:
    """Return the statements that count ended repairs and, if there may be more, find the next processes."""
    looks: dict[str, Params] = {"settle_bulk": bulk}
    if bulk["status"] == BulkStatus.RUNNING and not bulk["at_end"] and room > 0:
        looks["look_bulk"] = {**bulk, "until": bulk["created_at"], "room": room, "looks": _LOOKS}
    return looks


def _settle(bulk: Row, ended: Row) -> None:
    for name in ("repaired", "refused", "failed", "removed"):
        bulk[name] += ended[name]
    bulk["last_error"] = ended["last_error"] or bulk["last_error"]


async def _note(session: Session, before: Bulk, bulk: Row, begun: Sequence[Row]) -> BulkRound:
    """Commit the round, and the time of its progress if it made any."""
    after = _bulk_of(bulk)
    new = {name: getattr(after, name) - getattr(before, name) for name in _COUNTS}
    if any(new.values()):
        bulk["still_since"] = max(bulk["now"], bulk["paced_at"])
    await session.commit({"note_bulk": {**bulk, **_keys(begun)}})
    return BulkRound(after, new)


def _room(bulk: Row) -> int:
    """Return how many repairs may begin now, by the pace and by the number that are under way."""
    behind = bulk["now"] - max(bulk["paced_at"], bulk["now"] - _BURST)
    if behind < timedelta():
        return 0
    return int(min(1 + behind // bulk["pace"], MOST_UNDER_WAY - _bulk_of(bulk).under_way))


def _looked(before: _Looked, rows: Sequence[Row], room: int) -> _Looked:
    """Return what the look found.

    Without room for all that match, the next goes on behind the last chosen.
    """
    chosen = [row for row in rows if row["matches"]]
    if not rows:
        return replace(before, at_end=True)
    (end,) = [row for row in rows if not row["matches"]]
    last = chosen[-1] if len(chosen) == room else end
    at_end = last["place"] == end["place"] and end["place"] < _LOOKS
    return _Looked(chosen, last["place"], last["created_at"], last["process_no"], at_end)


async def _begin(session: Session, bulk: Row, chosen: Sequence[Row]) -> list[Row]:
    """Lock these processes, begin the repair of those that are as they were, and return their rows."""
    requests = [_request_of(bulk, row["process_id"]) for row in chosen]
    numbers = {"process_no": bigints([row["process_no"] for row in chosen])}
    params = {**request_columns(requests), "now": bulk["now"]}
    verb = "simple_repair" if bulk["simple"] else "prepare_repair"
    statements: dict[str, Params] = {
        "lock": numbers,
        "choose_bulk": {**numbers, "until": bulk["created_at"], "until_task": bulk["until_task"]},
        verb: params,
        "prepared": params,
    }
    told = await session.transact(statements)
    # A repair with another key or lease was begun by somebody else, or before.
    return [row for row in told["prepared"] if row["task_id"] is not None and row["own"]]


def _request_of(bulk: Row, process_id: str) -> Request:
    # The key has the bulk's number and its time: a database whose bulks were dropped counts from 1 again.
    key = f"bulk/{bulk['bulk_id']}/{bulk['created_at'].timestamp() * 1_000_000:.0f}"
    return Request(
        namespace=bulk["namespace"],
        process_id=process_id,
        task_type=TaskType.REPAIR,
        idempotency_key=key,
        request_hash=bulk["request_hash"],
        lease=secrets.randbits(63),
        name="simple_repair" if bulk["simple"] else None,
        args=None if bulk["simple"] else bulk["args"],
    )


def _go_on(bulk: Row, looked: _Looked, *, begun: int, pause: timedelta) -> None:
    """Set when and where the bulk goes on, and whether it has ended."""
    now = bulk["now"]
    bulk["paced_at"] = max(bulk["paced_at"], now - _BURST) + begun * bulk["pace"]
    bulk["next_at"] = max(bulk["paced_at"], now + pause)
    bulk.update(cursor_at=looked.cursor_at, cursor_no=looked.cursor_no, at_end=looked.at_end)
    if _bulk_of(bulk).under_way:
        # A round that comes before the pace allows a repair only counts ended repairs.
        bulk["next_at"] = min(bulk["next_at"], now + _SEEN_WITHIN)
        return
    if bulk["status"] == BulkStatus.STOPPING:
        bulk.update(status=BulkStatus.STOPPED.value, ended_at=now)
    elif looked.at_end:
        bulk.update(status=BulkStatus.FINISHED.value, ended_at=now)


def _keys(begun: Sequence[Row]) -> dict[str, Any]:
    return {
        "process_no": bigints([row["process_no"] for row in begun]),
        "task_id": bigints([row["task_id"] for row in begun]),
    }


def _bulk_of(row: Row) -> Bulk:
    pace: timedelta = row["pace"]
    return Bulk(
        bulk_id=row["bulk_id"],
        namespace=row["namespace"],
        status=BulkStatus(row["status"]),
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        rate=float(f"{1 / pace.total_seconds():.3g}"),
        simple=row["simple"],
        detail_like=row["detail_like"],
        handler=row["handler"],
        last_error=row["last_error"],
        **{name: row[name] for name in _COUNTS},
    )


def _group_of(row: Row) -> BrokenGroup:
    names = ("handler", "detail", "processes", "first_broken", "last_broken")
    return BrokenGroup(**{name: row[name] for name in names}, examples=tuple(row["examples"]))
