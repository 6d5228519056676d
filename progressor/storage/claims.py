"""Claims: tasks are moved into a worker's hands; of large values it then reads what there is room for.

Rule: a claim is one statement, whose cost does not depend on what is large. What there is no room for
goes back unharmed, to whoever has room.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from progressor.model import Task
from progressor.storage.arrays import BigintArray
from progressor.storage.items import Claimed
from progressor.storage.refusals import Unreadable
from progressor.storage.rows import Row, claimed_of
from progressor.storage.session import Session

log = logging.getLogger("progressor.storage")


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


async def readable(session: Session, _again: bool, *, params: dict[str, Any]) -> list[Row]:
    """Of tasks that were claimed, those that can be read. The others stay in running, for a collector."""
    (keys,) = await session.transact([("claimed_keys", params)])
    rows: list[Row] = []
    for key in keys:
        try:
            (found,) = await session.transact([("claimed", {**params, "only": key["task_id"]})])
        except Unreadable as error:
            # Not its traceback, which may show the value.
            log.error("claimed task cannot be read", extra={**key, "error": str(error)})  # noqa: TRY400
        else:
            rows += found
    return rows


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
