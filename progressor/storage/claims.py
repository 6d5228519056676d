"""Claims: tasks are moved into a worker's hands; of large values it then reads what there is room for.

Rule: a claim is one statement, whose cost does not depend on what is large. What there is no room for
goes back unharmed, to whoever has room. What cannot be read costs itself only.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from progressor import metrics
from progressor.errors import StorageUnavailable
from progressor.model import Task
from progressor.storage.arrays import BigintArray
from progressor.storage.items import Claimed, Continue, Postpone, Prepared, Request, TaskRef
from progressor.storage.refusals import BatchRefused, Unreadable
from progressor.storage.rows import Row, claimed_of
from progressor.storage.session import Session

log = logging.getLogger("progressor.storage")

Params = dict[str, Any]
Run = Callable[[str, Callable[[Session, bool], Awaitable[Any]]], Awaitable[Any]]
"""Runs a transaction until PostgreSQL does it, or refuses it twice for damage."""

_DUE = {"search_calls": "due_calls", "search_timers": "due_timers"}
# How many tasks that cannot be claimed a claim passes over, and how many were said once are remembered.
_MOST_PASSED_OVER, _MOST_SAID = 200, 1000


async def claim(session: Session, again: bool, *, verb: str, params: dict[str, Any]) -> list[Row]:
    """The tasks that are claimed, without their large values."""
    if not again:
        _, rows = await session.transact([("one_claim", params), (verb, params)])
        return rows
    # It waits for its own first try, which may still be under way on a connection that only we lost: what
    # that one claims must not be left to nobody.
    async with session.transaction():
        _, rows = await session.transact([("one_claim", params), ("claimed", {**params, "only": None})])
        if not rows:
            (rows,) = await session.transact([(verb, params)])
    return rows


class Unread:
    """Tasks that cannot be read: each is said once, and counted each time."""

    def __init__(self) -> None:
        self._said: set[tuple[str, int]] = set()

    def met(self, message: str, key: Row, error: Exception) -> None:
        metrics.UNREAD.inc()
        about = message, key["task_id"]
        if about in self._said:
            return
        if len(self._said) >= _MOST_SAID:
            self._said.clear()
        self._said.add(about)
        # Not its traceback, which may show the value.
        fields = {"process_no": key["process_no"], "task_id": key["task_id"], "error": str(error)}
        log.error(message, extra=fields)


async def one_by_one(run: Run, verb: str, params: Params, unread: Unread) -> list[Row]:
    """The tasks of a claim that is refused for the sake of one: each is claimed alone, then read."""
    keys = await run(
        "claimed_keys", partial(_rows, statements=[("one_claim", params), ("claimed_keys", params)])
    )
    limit = params.get("limit", 1)
    candidates = [params]
    if verb in _DUE:
        more = {**params, "limit": limit + _MOST_PASSED_OVER}
        candidates = await run(_DUE[verb], partial(_rows, statements=[(_DUE[verb], more)]))
    for candidate in candidates:
        if len(keys) >= limit:
            break
        one = {**params, "process_no": candidate["process_no"], "task_id": candidate["task_id"]}
        # What is claimed by now, so that it is known also when an answer was lost.
        taking = [(each, one) for each in ("one_claim", "take_unseen", "claimed_keys")]
        try:
            keys = await run("take_unseen", partial(_rows, statements=taking))
        except BatchRefused as error:
            unread.met("waiting task cannot be claimed", one, error)
    return await _read(run, params, keys, unread)


async def accepted(
    run: Run, request: Request, error: Unreadable | BatchRefused, unread: Unread
) -> Prepared:
    """The outcome of a request that cannot be read as a whole, if it made a task; else what it raises.

    A task in this worker's hands runs if it can be read. If not, it stays in running, and its caller hears
    from a collector.
    """
    if isinstance(error, BatchRefused):
        raise StorageUnavailable(f"PostgreSQL cannot read what is stored: {error}") from None
    name = {"namespace": request.namespace, "process_id": request.process_id}
    key = {"idempotency_key": request.idempotency_key, "lease": request.lease}
    for life in await run("find_process", partial(_rows, statements=[("find_process", name)])):
        made = await run("own_task", partial(_rows, statements=[("own_task", {**life, **key})]))
        if made:
            for row in await readable(
                run, {"worker_id": request.worker_id, "lease": request.lease}, unread
            ):
                held = claimed_of(row)
                return Continue(held.task, held.process)
            return Postpone(TaskRef(request.namespace, made[0]["process_no"], made[0]["task_id"]))
    raise error


async def readable(run: Run, params: Params, unread: Unread) -> list[Row]:
    """Of tasks that were claimed, those that can be read."""
    keys = await run("claimed_keys", partial(_rows, statements=[("claimed_keys", params)]))
    return await _read(run, params, keys, unread)


async def _read(run: Run, params: Params, keys: Sequence[Row], unread: Unread) -> list[Row]:
    """The tasks of these keys. What cannot be read stays in running, for a collector."""
    rows: list[Row] = []
    for key in keys:
        reading = [("claimed", {**params, "only": key["task_id"]})]
        try:
            rows += await run("claimed", partial(_rows, statements=reading))
        except (Unreadable, BatchRefused) as error:
            unread.met("claimed task cannot be read", key, error)
    return rows


async def _rows(session: Session, _again: bool, *, statements: Sequence[tuple[str, Params]]) -> list[Row]:
    return (await session.transact(statements))[-1]


async def loaded(
    run: Run, rows: Sequence[Row], room: int, unread: Unread
) -> tuple[list[Claimed], list[Task]]:
    """What is run of claimed tasks, with its large values, and what goes back."""
    large = [row for row in rows if row["is_large"]]
    if not large:
        return shared_out(rows, {})
    try:
        values = await run("large_values", partial(large_values, rows=large, room=room))
    except BatchRefused:
        return await loaded(run, await _legible(run, rows, unread), room, unread)
    return shared_out(rows, values)


async def _legible(run: Run, rows: Sequence[Row], unread: Unread) -> list[Row]:
    """Claimed tasks without those whose large values cannot be read: these stay in running."""
    left = []
    for row in rows:
        try:
            if row["is_large"]:
                await run("large_values", partial(large_values, rows=[row], room=1))
        except BatchRefused as error:
            unread.met("claimed task cannot be read", row, error)
        else:
            left.append(row)
    return left


async def large_values(session: Session, _again: bool, *, rows: Sequence[Row], room: int) -> dict[int, Row]:
    """The values of claimed tasks, of the first ones at least, by the numbers of their processes."""
    params = {
        "process_no": BigintArray([row["process_no"] for row in rows]),
        "task_id": BigintArray([row["task_id"] for row in rows]),
        "bytes": room,
    }
    (found,) = await session.transact([("large_values", params)])
    return {row["process_no"]: row for row in found}


def shared_out(rows: Sequence[Row], values: dict[int, Row]) -> tuple[list[Claimed], list[Task]]:
    """What is run, with its values, and what goes back: there was no room, or it was removed meanwhile."""
    taken, left = [], []
    for row in rows:
        claimed = claimed_of({**row, **values.get(row["process_no"], {})})
        if row["is_large"] and row["process_no"] not in values:
            left.append(claimed.task)
        else:
            taken.append(claimed)
    return taken, left
