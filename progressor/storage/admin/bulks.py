"""Bulks: repairs of all broken processes that match, a round at a time.

Rule: a round is one transaction. It holds the row of its bulk, so no two run one bulk at once and a dead
runner loses it; what it begins, how far it came and what it counted commit together, so nothing is
repeated or forgotten wherever it dies. A process is repaired only if it is, behind its own lock, still
broken as it was when the bulk was made; and under a key of bulk and process, so never twice. A round either
runs requests of repaired processes again or begins repairs, so it locks processes once. Room, counts and
place are those of `progressor.bulks`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, TypeVar

from progressor.acts import Act, Deed
from progressor.bulks import (
    BrokenGroup,
    Bulk,
    BulkLook,
    BulkPreview,
    BulkRound,
    BulkStatus,
    Candidate,
    Ended,
    HeldBulk,
)
from progressor.errors import InvalidRequest
from progressor.inputs import new_lease, redo_key
from progressor.model import ProcessStatus, TaskStatus, TaskType
from progressor.rights import like
from progressor.storage.admin.audit import Audited
from progressor.storage.feed.appending import FeedLetter, feeding_processes
from progressor.storage.params import redo_columns, request_columns
from progressor.storage.postgres.arrays import bigints, booleans, texts
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.retry import Apart, as_one, damage_or_lock, one_item
from progressor.storage.postgres.session_setup import BRIEFLY
from progressor.storage.postgres.sqlstates import BatchRefused, Blocked
from progressor.storage.rows import record_of
from progressor.storage.statements import REDO, Params, Results, Row
from progressor.storage.values import Request, TaskKey

B = TypeVar("B", bound=Bulk)

# One round: the most broken processes it looks at, and the most repairs it begins.
_LOOKS, _MOST = 1000, 200
# Broken processes that are looked at to count what is left, and for a preview; groups in a preview.
_LEFT, _PREVIEWED, _GROUPS = 10_000, 100_000, 50

# All that is broken now, from the first on.
_UNBOUND: Params = {"cursor_at": None, "cursor_no": 0, "until": None, "until_task": None}


class Made(NamedTuple):
    """The bulk of a key; `is_another` if the key was used for another request."""

    bulk: Bulk
    is_another: bool


class RunningBulks(NamedTuple):
    """The bulks of a namespace that have not ended, and the longest time for which one has stood still.

    A rest that the pace of a bulk demands does not count.
    """

    namespace: str
    bulks: int
    still: timedelta


@dataclass(slots=True)
class _Try:
    """The last try of a round: its place, the processes to repair, and the requests to run again."""

    place: object = None
    chosen: Sequence[Candidate] = ()
    redos: Sequence[Row] = ()

    @property
    def first(self) -> str:
        """The id of the first process that was tried; "bulks" if none was reached."""
        ids = [*(row["process_id"] for row in self.redos), *(each.process_id for each in self.chosen)]
        return ids[0] if ids else "bulks"


class NewBulk(NamedTuple):
    """A bulk to make. `request_hash` is that of each repair, `bulk_hash` that of the whole request.

    `pace` is the time from one repair to the next.
    """

    namespace: str
    detail_like: str | None
    handler: str | None
    simple: bool
    args: bytes | None
    request_hash: bytes
    idempotency_key: str
    bulk_hash: bytes
    pace: timedelta
    redo: bool = False


class Bulks(Audited):
    """The operations on bulks."""

    async def make_bulk(
        self, item: NewBulk, *, act: Act | None = None, now: datetime | None = None
    ) -> Made:
        """Store a bulk, whose bound is now, or find the one that was made with its key."""
        params = {**item._asdict(), "now": now}
        statements = {"make_bulk": params, "bulk_of_key": params}

        def made(found: Results) -> Deed | None:
            rows = found["make_bulk"]
            return Deed(item.namespace, subject=f"bulk {rows[0]['bulk_id']}") if rows else None

        results = await self._acted("make_bulk", statements, act, made, now=now)
        (row,) = results["bulk_of_key"]
        return Made(_bulk_of(row, Bulk), bytes(row["bulk_hash"]) != item.bulk_hash)

    async def bulks(self, *, limit: int, namespaces: Sequence[str] | None = None) -> list[Bulk]:
        """Return the newest bulks, of the namespaces that these patterns fit.

        What is left is not counted.
        """
        patterns = None if namespaces is None else texts([like(each) for each in namespaces])
        rows = await self._rows("bulks", bulk_id=None, limit=limit, namespaces=patterns)
        return [_bulk_of(row, Bulk) for row in rows]

    async def bulk(self, bulk_id: int) -> Bulk | None:
        """Return a bulk, with what is left, counted up to a bound; None if there is none."""
        rows = await self._rows("bulks", bulk_id=bulk_id, limit=1, namespaces=None)
        if not rows:
            return None
        bulk = _bulk_of(rows[0], Bulk)
        if bulk.status is not BulkStatus.RUNNING or rows[0]["at_end"]:
            return replace(bulk, left=0)
        found = await self._preview({**rows[0], "until": bulk.created_at}, looks=_LEFT, groups=0)
        return replace(bulk, left=found.processes, has_more=found.has_more)

    async def bulk_args(self, bulk_id: int, *, most: int) -> tuple[bytes | None, int]:
        """Return the args of a bulk, None for those of more than `most` bytes; and how many they have."""
        for row in await self._rows("bulk_args", bulk_id=bulk_id, most=most):
            return row["args"], row["size"]
        return None, 0

    async def preview_bulk(
        self, namespace: str, *, detail_like: str | None, handler: str | None
    ) -> BulkPreview:
        """Return a preview: the processes that a bulk with this filter would repair now."""
        wanted = {"namespace": namespace, "detail_like": detail_like, "handler": handler}
        return await self._preview({**wanted, **_UNBOUND}, looks=_PREVIEWED, groups=_GROUPS)

    async def preview_newest(
        self, namespace: str, *, detail_like: str | None, handler: str | None, looks: int, most: int
    ) -> BulkPreview:
        """Return a preview of up to `most` of these processes, among the newest `looks` broken ones."""
        wanted = {"namespace": namespace, "detail_like": detail_like, "handler": handler, **_UNBOUND}
        rows = await self._rows("broken_groups_newest", **wanted, looks=looks, groups=_GROUPS, most=most)
        return _preview_of(rows, looks=looks, most=most)

    async def _preview(self, wanted: Params, *, looks: int, groups: int) -> BulkPreview:
        rows = await self._rows("broken_groups", **wanted, looks=looks, groups=groups, most=looks)
        return _preview_of(rows, looks=looks, most=looks)

    async def stop_bulk(self, bulk_id: int, *, act: Act | None = None, now: datetime | None = None) -> None:
        """Stop a bulk; after this returns, it begins no more repairs."""
        for row in await self._rows("bulks", bulk_id=bulk_id, namespaces=None, limit=1):
            # From here on every try is for this bulk.
            params = {"bulk_id": bulk_id, "idempotency_key": row["idempotency_key"], "now": now}
            deed = Deed(row["namespace"], subject=f"bulk {bulk_id}")
            await self._done("stop_bulk", params, act, deed, now=now)

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
        for room, apart in ((most, one_item), (1, damage_or_lock)):
            tried = _Try()
            try:
                return await self._round(partial(_carry, most=room, tried=tried), apart, now)
            except (BatchRefused, InvalidRequest) as error:
                refused = error
        return await self._round(partial(_leave, tried=tried, refused=refused), as_one, now)

    async def _round(
        self,
        carry: Callable[[Session, HeldBulk], Awaitable[BulkRound | None]],
        apart: Apart,
        now: datetime | None,
    ) -> BulkRound | None:
        async def attempt(session: Session, _again: bool) -> BulkRound | None:
            async with session.transaction():
                rows = (await session.transact({"lock_bulk": {"now": now}}))["lock_bulk"]
                return await carry(session, _bulk_of(rows[0], HeldBulk)) if rows else None

        return await self._run("run_bulk", attempt, apart=apart)


async def _carry(session: Session, bulk: HeldBulk, *, most: int, tried: _Try) -> BulkRound:
    """Run requests of repaired processes again; if none are due, count ended repairs and begin others."""
    tried.place, tried.chosen, tried.redos = bulk.place, (), ()
    if bulk.redo:
        due = {"bulk_id": bulk.bulk_id, "room": most}
        tried.redos = (await session.transact({"due_redos": due}))["due_redos"]
    if tried.redos:
        return await _redo(session, bulk, tried.redos)
    room = bulk.room(most)
    params = {**asdict(bulk), "until": bulk.created_at, "room": room, "looks": _LOOKS}
    statements = ("settle_bulk", "look_bulk") if room else ("settle_bulk",)
    found = await session.transact(dict.fromkeys(statements, params))
    look = BulkLook(bulk.at_end)
    if room:
        look = BulkLook.of([Candidate(**row) for row in found["look_bulk"]], room=room, looks=_LOOKS)
    tried.chosen = look.chosen
    begun: Sequence[Row] = ()
    if look.chosen:
        begun, up_to = await _begin(session, bulk, look.chosen)
        look = look.up_to(up_to)
    under_way = [row for row in begun if not _is_done(row)]
    ended = Ended(**found["settle_bulk"][0])
    done = bulk.advance(look, ended, begun=len(begun), done=len(begun) - len(under_way))
    return await _note(session, done, under_way)


async def _leave(session: Session, bulk: HeldBulk, *, tried: _Try, refused: Exception) -> BulkRound | None:
    """Pass by the only process or redo that was tried, unless another runner went on since.

    While another session keeps that process locked, the bulk waits, and other bulks go on.
    """
    if tried.place != bulk.place:
        return None
    if isinstance(refused, Blocked):
        return await _note(session, bulk.give_up(None, f"{tried.first}: it is locked: {refused}"), ())
    if tried.redos:
        redo = tried.redos[0]
        is_due = await _go_on(session, bulk, [redo], {redo["process_no"]})
        passed = bulk.redo_some(0, f"{tried.first}: it cannot be run again: {refused}")
        return await _note(session, passed, ()) if is_due else None
    tried_one = tried.chosen[0] if tried.chosen else None
    return await _note(session, bulk.give_up(tried_one, f"it cannot be repaired: {refused}"), ())


async def _note(session: Session, done: BulkRound, under_way: Sequence[Row]) -> BulkRound:
    """Store the round, with the repairs that are under way since."""
    names = ("process_no", "task_id", "redo_task_id")
    keys = {name: bigints([row[name] for row in under_way]) for name in names}
    await session.transact({"note_bulk": {**asdict(done.bulk), **keys}})
    return done


async def _redo(session: Session, bulk: HeldBulk, due: Sequence[Row]) -> BulkRound:
    """Accept these requests once more, of the processes that still run, and go on to those behind them."""
    requests = [_redo_of(bulk, row) for row in due if row["task_type"] is not None]
    rows: list[Row] = []
    if requests:
        params = {**redo_columns(requests), "now": bulk.now}
        rows = (await session.transact({**BRIEFLY, **dict.fromkeys(REDO, params)}))["prepare_call"]
    # A redo with another lease was asked for by somebody else, before.
    redone = sum(bool(row["own"]) for row in rows)
    await _go_on(session, bulk, due, {row["process_no"] for row in rows if row["task_id"] is not None})
    return await _note(session, bulk.redo_some(redone), ())


async def _go_on(session: Session, bulk: HeldBulk, tried: Sequence[Row], processes: set[int]) -> bool:
    """Note that these are no longer due, but the next ones of these processes; return whether any was."""
    params = {
        "bulk_id": bulk.bulk_id,
        "process_no": bigints([row["process_no"] for row in tried]),
        "redo_task_id": bigints([row["redo_task_id"] for row in tried]),
        "goes_on": booleans([row["process_no"] in processes for row in tried]),
    }
    return bool((await session.transact({"note_redos": params}))["note_redos"])


async def _begin(
    session: Session, bulk: HeldBulk, chosen: Sequence[Candidate]
) -> tuple[Sequence[Row], int]:
    """Lock these processes, begin the repair of those that are as they were, and return their rows.

    And return how many of the processes come before the first that has a dry run: the others are left.
    """
    requests = [_request_of(bulk, each.process_id) for each in chosen]
    process_nos = [each.process_no for each in chosen]
    numbers = {"process_no": bigints(process_nos)}
    params = {**request_columns(requests), "now": bulk.now}
    verb = "simple_repair" if bulk.simple else "prepare_repair"
    # Read before the repair, which forgets them.
    broken_by: dict[str, Params] = {"broken_requests": numbers} if bulk.redo else {}
    # A repair with a handler tells of itself.
    fed = feeding_processes(FeedLetter.REPAIRED, process_nos, now=bulk.now) if bulk.simple else {}
    statements: dict[str, Params] = {
        **BRIEFLY,
        "lock": numbers,
        "choose_bulk": {**numbers, "until": bulk.created_at, "until_task": bulk.until_task},
        **broken_by,
        verb: params,
        "prepared": params,
        **fed,
    }
    results = await session.transact(statements)
    redos = {row["process_no"]: row["task_id"] for row in results.get("broken_requests", ())}
    # A repair with another key or lease was begun by somebody else, or before.
    begun = [
        {**row, "redo_task_id": redos.get(row["process_no"])}
        for row in results["prepared"]
        if row["task_id"] is not None and row["own"]
    ]
    return begun, results["choose_bulk"][0]["up_to"]


def _is_done(row: Row) -> bool:
    """Return whether the repair has ended: no repair handler, init or redo has to come."""
    has_ended = row["task_status"] == TaskStatus.FINISHED and row["status"] != ProcessStatus.INIT
    return bool(has_ended and row["redo_task_id"] is None)


def _request_of(bulk: HeldBulk, process_id: str) -> Request:
    # The key has the bulk's number and its time: a database whose bulks were dropped counts from 1 again.
    key = f"bulk/{bulk.bulk_id}/{bulk.created_at.timestamp() * 1_000_000:.0f}"
    return Request(
        namespace=bulk.namespace,
        process_id=process_id,
        task_type=TaskType.REPAIR,
        idempotency_key=key,
        request_hash=bulk.request_hash,
        lease=new_lease(),
        name="simple_repair" if bulk.simple else None,
        args=None if bulk.simple else bulk.args,
    )


def _redo_of(bulk: HeldBulk, row: Row) -> Request:
    return Request(
        namespace=bulk.namespace,
        process_id=row["process_id"],
        task_type=TaskType(row["task_type"]),
        idempotency_key=redo_key(row["redo_task_id"]),
        request_hash=row["request_hash"] or b"",
        lease=new_lease(),
        name=row["name"],
        redoes=TaskKey(
            row["process_no"],
            row["redo_task_id"],
            row["birth"],
            row["idempotency_key"],
            row["request_hash"],
        ),
    )


def _preview_of(rows: Sequence[Row], *, looks: int, most: int) -> BulkPreview:
    found = [
        record_of(BrokenGroup, row, examples=tuple(row["examples"]))
        for row in rows
        if row["processes"] is not None
    ]
    looked_at, matching = rows[0]["looked_at"], rows[0]["matching"]
    return BulkPreview(matching, looked_at, looked_at == looks or matching == most, tuple(found))


def _bulk_of(row: Row, kind: type[B]) -> B:
    rate = float(f"{1 / row['pace'].total_seconds():.3g}")
    return record_of(kind, row, status=BulkStatus(row["status"]), rate=rate)
