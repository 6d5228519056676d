"""What becomes of zombies: the verdicts, carried out in the transaction that has locked their processes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from progressor.config import NamespaceOptions
from progressor.errors import InvalidRequest
from progressor.model import TaskType
from progressor.storage.arrays import BigintArray, TextArray, microseconds
from progressor.storage.items import TaskRef, Zombie
from progressor.storage.rows import Row, grouped
from progressor.storage.session import Session
from progressor.transitions import GoesBack, Loss, judge

log = logging.getLogger("progressor.storage.zombies")


async def bury(session: Session, found: Sequence[Row], now: datetime | None) -> list[Zombie]:
    """Carry out the verdicts on zombies whose processes this transaction has locked."""
    verdicts = [(row, _verdict(row)) for row in found]
    broken = [row for row, again in verdicts if again is None]
    retried = [(row, again) for row, again in verdicts if again is not None]
    statements = []
    if broken:
        detail = TextArray(["zombie detected"] * len(broken))
        params = {**_row_keys(broken), "detail": detail, "now": now}
        statements += [("cancel_waiting", params), ("break_zombies", params)]
    if retried:
        params = {**_row_keys([row for row, _ in retried]), "attempts": 1, "now": now}
        delays = [again.interval and microseconds(again.interval) for _, again in retried]
        statements.append(("release", {**params, "delay": BigintArray(delays)}))
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


def _verdict(row: Row) -> GoesBack | None:
    loss = Loss(
        task_type=TaskType(row["task_type"]),
        attempts_count=row["attempts_count"],
        last_retry_interval=row["last_retry_interval"],
        zombie_count=row["zombie_count"] or 0,
    )
    return judge(loss, _options(row))


def _options(row: Row) -> NamespaceOptions:
    """What its namespace says of zombies; the defaults where it says nothing that can be read."""
    names = ("on_zombie", "zombie_attempts", "retry_policy")
    try:
        return NamespaceOptions(**{name: row[name] for name in names if row[name] is not None})
    except InvalidRequest as error:
        log.warning(
            "options cannot be read, going by the defaults",
            extra={"namespace": row["namespace"], "error": str(error)},
        )
        return NamespaceOptions()


def _row_keys(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "process_no": BigintArray([row["process_no"] for row in rows]),
        "task_id": BigintArray([row["task_id"] for row in rows]),
        "worker_id": BigintArray([row["worker_id"] for row in rows]),
        "lease": BigintArray([row["lease"] for row in rows]),
    }
