"""Zombies: which they are, and what becomes of them, in the transaction that has locked their processes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import errors as pg

from progressor.config import NamespaceOptions
from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.model import TaskType, shown_id
from progressor.storage.arrays import BigintArray, TextArray, microseconds
from progressor.storage.items import Evidence, TaskRef, Zombie
from progressor.storage.rows import Row, grouped
from progressor.storage.session import Params, Session
from progressor.transitions import GoesBack, Loss, judge

log = logging.getLogger("progressor.storage.zombies")


def evidence_columns(evidence: Evidence, lease_age: timedelta) -> dict[str, Any]:
    """What a statement that judges workers is told."""
    return {
        "collector": evidence.worker_id,
        "beats": evidence.beats,
        "since": evidence.since,
        "at": evidence.at,
        "lease_age": lease_age,
    }


async def find(session: Session, params: Params) -> list[Row]:
    """The zombies, their processes locked in this transaction."""
    try:
        _, found = await session.transact([("lock_saved_tables", {}), ("find_zombies", params)])
    except pg.LockNotAvailable as error:
        # Not to be repeated until it goes through: nobody could save a step meanwhile.
        raise StorageUnavailable(f"nobody is judged: {error.diag.message_primary}") from error
    return found


async def bury(session: Session, found: Sequence[Row], now: datetime | None) -> list[Zombie]:
    """Carry out the verdicts on zombies whose processes this transaction has locked."""
    verdicts = [(row, _verdict(row)) for row in found]
    broken = [row for row, again in verdicts if again is None]
    retried = [(row, again) for row, again in verdicts if again is not None]
    statements = []
    if broken:
        params = {**_row_keys(broken), "now": now}
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
                    worker_id=by_number[number]["worker_id"],
                    reason=_reason(by_number[number]),
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


def _reason(row: Row) -> str:
    """Why the task was taken, for its caller, its trace and the log."""
    worker, lease, limit = shown_id(row["worker_id"]), row["lease_age"], row["step_timeout"]
    if row["seen_at"] is None:
        return f"zombie detected: worker {worker} is gone, for longer than a lease of {_shown(lease)}"
    if row["is_silent"]:
        seen = row["seen_at"].astimezone(UTC).isoformat(sep=" ", timespec="milliseconds")
        return f"zombie detected: worker {worker} was last seen at {seen}, its lease is {_shown(lease)}"
    return f"zombie detected: on worker {worker} it outlived its step_timeout of {_shown(limit)}"


def _shown(age: timedelta) -> str:
    return f"{age.total_seconds():g} s"


def _row_keys(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "process_no": BigintArray([row["process_no"] for row in rows]),
        "task_id": BigintArray([row["task_id"] for row in rows]),
        "worker_id": BigintArray([row["worker_id"] for row in rows]),
        "lease": BigintArray([row["lease"] for row in rows]),
        "detail": TextArray([_reason(row) for row in rows]),
    }
