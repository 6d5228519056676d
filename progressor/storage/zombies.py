"""What becomes of zombies: the verdicts, carried out in the transaction that has locked their processes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from progressor.model import TaskType
from progressor.storage.arrays import BigintArray, TextArray
from progressor.storage.items import TaskRef, Zombie
from progressor.storage.rows import Row, grouped
from progressor.storage.session import Session


async def bury(session: Session, found: Sequence[Row], now: datetime | None) -> list[Zombie]:
    """Carry out the verdicts on zombies whose processes this transaction has locked."""
    broken: list[Row] = []
    retried: list[Row] = []
    for row in found:
        limit = row["max_attempts"]
        again = row["on_zombie"] == "retry" and (limit is None or row["attempts_count"] + 1 < limit)
        (retried if again else broken).append(row)
    statements = []
    if broken:
        detail = TextArray(["zombie detected"] * len(broken))
        params = {**_row_keys(broken), "detail": detail, "now": now}
        statements += [("cancel_waiting", params), ("break_zombies", params)]
    if retried:
        statements.append(("release", {**_row_keys(retried), "attempts": 1}))
    results = await session.transact(statements)
    by_number = {row["process_no"]: row for row in found}
    namespaces = {number: row["namespace"] for number, row in by_number.items()}
    cancelled = grouped(results[0], namespaces) if broken else {}
    zombies = []
    for verdict, rows in (
        ("error", results[1] if broken else []),
        ("retry", results[-1] if retried else []),
    ):
        for row in rows:
            number = row["process_no"]
            zombies.append(
                Zombie(
                    task=TaskRef(namespaces[number], number, row["task_id"], row["reply_to"]),
                    process_id=by_number[number]["process_id"],
                    task_type=TaskType(row["task_type"]),
                    verdict=verdict,  # type: ignore[arg-type]
                    cancelled=cancelled.get(number, ()) if verdict == "error" else (),
                )
            )
    return zombies


def _row_keys(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "process_no": BigintArray([row["process_no"] for row in rows]),
        "task_id": BigintArray([row["task_id"] for row in rows]),
        "worker_id": BigintArray([row["worker_id"] for row in rows]),
        "lease": BigintArray([row["lease"] for row in rows]),
    }
