"""Claims: tasks are moved into a worker's hands; large values are then read as far as there is room.

Rule: a claim is one statement, whose cost does not depend on large values. A task without room goes back
unharmed, to a worker that has room. A task that cannot be read holds up no other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from progressor import metrics
from progressor.errors import StorageUnavailable
from progressor.loggers import Logger
from progressor.model import Task
from progressor.storage.postgres.arrays import bigints
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.sqlstates import BatchRefused, Unreadable
from progressor.storage.rows import claimed_of, ref_of
from progressor.storage.statements import Params, Results, Row, Transaction
from progressor.storage.values import Claimed, Continue, Postpone, Prepared, Request

log = Logger("progressor.storage")

T = TypeVar("T")

Transact = Callable[[str, Transaction], Awaitable[Results]]
"""A function that runs a transaction until PostgreSQL does it, or refuses it twice for damage."""

# What locks the groups in which a claim takes tasks, and the rate by which it does.
_BEFORE = dict.fromkeys(("search_groups", "take_groups"), ("lock_groups",))
_RATE = ("make_rate", "lock_rate")
_DUE = {
    "search_calls": "due_calls",
    "search_served_calls": "due_calls",
    "search_timers": "due_timers",
    "search_served_timers": "due_timers",
}
# Tasks: the most that a claim passes over because they cannot be claimed; the most that are remembered as
# logged.
_MOST_PASSED_OVER, _MOST_LOGGED = 200, 1000
_UNREAD = "claimed task cannot be read"


def _taking(verb: str, params: Params) -> tuple[str, Transaction]:
    """Return the statement of a claim, and that with those before it: by rates, if any concern it."""
    before = _BEFORE.get(verb, ())
    has_rate = params.get("rate_interval") is not None
    if has_rate or (before and params.get("group_interval") is not None):
        before = (*_RATE, *before) if has_rate else before
        verb = f"{verb}_rated"
    return verb, dict.fromkeys((*before, verb), params)


async def claim(
    session: Session, again: bool, *, verb: str, params: dict[str, Any], tried: bool = False
) -> list[Row]:
    """Claim tasks and return their rows, without large values.

    With `again` or `tried` an earlier try under this lease may have been committed.
    """
    sent, taking = _taking(verb, params)
    if not (again or tried):
        rows = (await session.transact({"one_claim": params, **taking}))[sent]
        return await as_locked(session, params, rows)
    # `one_claim` waits for the first try, which may still be under way on a connection that only we lost:
    # the tasks that it claims must be found and run.
    async with session.transaction():
        results = await session.transact({"one_claim": params, **_claimed(params)})
        if rows := results["claimed"]:
            return rows
        return await as_locked(session, params, (await session.transact(taking))[sent])


async def as_locked(session: Session, params: Params, rows: list[Row]) -> list[Row]:
    """Return claimed tasks with the timers of their processes as they are behind the lock."""
    if not any(row["is_outdated"] for row in rows):
        return rows
    return (await session.transact(_claimed(params)))["claimed"]


def _claimed(params: Params) -> Transaction:
    return {"claimed": {**params, "only": None}}


class Unread:
    """Tasks that cannot be read or claimed: each is logged once, and counted each time."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, int]] = set()

    async def one_by_one(
        self, failure: str, keys: Iterable[Row], run: Callable[[Row], Awaitable[Iterable[T]]]
    ) -> list[T]:
        """Run it for each of these tasks alone; pass by, and log, those that PostgreSQL cannot read."""
        results: list[T] = []
        for key in keys:
            try:
                results += await run(key)
            except (Unreadable, BatchRefused) as error:
                metrics.UNREAD.inc()
                self.log(failure, key, error)
        return results

    def log(self, message: str, key: Row, error: Exception) -> None:
        about = message, key["task_id"]
        if about in self._logged:
            return
        if len(self._logged) >= _MOST_LOGGED:
            self._logged.clear()
        self._logged.add(about)
        # Without a traceback, which may show the value.
        fields = {"process_no": key["process_no"], "task_id": key["task_id"], "error": str(error)}
        log.error(message, extra=fields)


async def claim_apart(transact: Transact, verb: str, params: Params, unread: Unread) -> list[Row]:
    """Claim tasks one by one, and read them so, after a claim that met one that cannot be read."""
    if verb in _BEFORE:
        _, groups = _taking("take_groups", params)
        taking = {"one_claim": params, **groups, "claimed_keys": params}
        return await _read(transact, params, (await transact(verb, taking))["claimed_keys"], unread)
    results = await transact("claimed_keys", {"one_claim": params, "claimed_keys": params})
    # The claim may have been committed, and only its answer be unreadable.
    keys = results["claimed_keys"]
    limit = params.get("limit", 1)
    candidates: list[Row] = [dict(params)]
    if verb in _DUE:
        due = _DUE[verb]
        more = {**params, "limit": limit + _MOST_PASSED_OVER}
        candidates = (await transact(due, {due: more}))[due]

    async def take(candidate: Row) -> tuple[()]:
        nonlocal keys
        if len(keys) < limit:
            one = {**params, "process_no": candidate["process_no"], "task_id": candidate["task_id"]}
            # Ask for all that is claimed by now: an earlier answer may have been lost.
            taking = {"one_claim": one, **_taking("take_unseen", one)[1], "claimed_keys": one}
            keys = (await transact("take_unseen", taking))["claimed_keys"]
        return ()

    await unread.one_by_one("waiting task cannot be claimed", candidates, take)
    return await _read(transact, params, keys, unread)


async def outcome_if_unreadable(
    transact: Transact, request: Request, error: Unreadable | BatchRefused, unread: Unread
) -> Prepared:
    """Return the outcome of a request whose answer cannot be read, if it made a task; else raise the error.

    A task in this worker's hands runs if it can be read. If not, it stays in `running`, and its caller gets
    an answer when a zombie collector takes it. StorageUnavailable for BatchRefused.
    """
    if isinstance(error, BatchRefused):
        raise StorageUnavailable(f"PostgreSQL cannot read what is stored: {error}") from None
    name = {"namespace": request.namespace, "process_id": request.process_id}
    key = {"idempotency_key": request.idempotency_key, "lease": request.lease}
    for life in (await transact("find_process", {"find_process": name}))["find_process"]:
        made = (await transact("own_task", {"own_task": {**life, **key}}))["own_task"]
        if made:
            mine = {"worker_id": request.worker_id, "lease": request.lease}
            keys = (await transact("claimed_keys", {"claimed_keys": mine}))["claimed_keys"]
            for row in await _read(transact, mine, keys, unread):
                held = claimed_of(row)
                return Continue(held.task, held.process)
            return Postpone(ref_of(request, made[0], birth=life["birth"]))
    raise error


async def _read(transact: Transact, params: Params, keys: Sequence[Row], unread: Unread) -> list[Row]:
    """Return the claimed tasks of these keys.

    One that cannot be read stays in `running`, for a zombie collector.
    """

    async def read(key: Row) -> list[Row]:
        return (await transact("claimed", {"claimed": {**params, "only": key["task_id"]}}))["claimed"]

    return await unread.one_by_one(_UNREAD, keys, read)


async def loaded(
    transact: Transact, rows: Sequence[Row], room: int, unread: Unread
) -> tuple[list[Claimed], list[Task]]:
    """Return the claimed tasks to run, with their large values, and those to hand back for lack of room."""
    large = [row for row in rows if row["is_large"]]
    try:
        values = await _large_values(transact, large, room) if large else {}
    except BatchRefused:
        legible = await unread.one_by_one(_UNREAD, large, lambda row: _large_values(transact, [row], 1))
        left = [row for row in rows if not row["is_large"] or row["process_no"] in legible]
        return await loaded(transact, left, room, unread)
    return shared_out(rows, values)


async def _large_values(transact: Transact, rows: Sequence[Row], room: int) -> dict[int, Row]:
    """Return the large values of the first tasks, as many as have room, by number of process."""
    params = {
        "process_no": bigints([row["process_no"] for row in rows]),
        "task_id": bigints([row["task_id"] for row in rows]),
        "birth": bigints([row["birth"] for row in rows]),
        "bytes": room,
    }
    found = (await transact("large_values", {"large_values": params}))["large_values"]
    return {row["process_no"]: row for row in found}


def shared_out(rows: Sequence[Row], values: dict[int, Row]) -> tuple[list[Claimed], list[Task]]:
    """Return the tasks to run, with values, and those to hand back: no room, or removed meanwhile."""
    taken, left = [], []
    for row in rows:
        claimed = claimed_of({**row, **values.get(row["process_no"], {})})
        if row["is_large"] and row["process_no"] not in values:
            left.append(claimed.task)
        else:
            taken.append(claimed)
    return taken, left
