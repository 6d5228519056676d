"""Zombies: they are found, judged and ended in one transaction, which locks their processes.

Rule: a round is one transaction. If PostgreSQL is well and refuses it, one zombie may be the cause: each is
then ended alone, and one that cannot be is logged, passed over, and tried again by the next round.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg import errors as pg

from progressor.config import NamespaceOptions
from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.loggers import Logger
from progressor.model import Decision, Disposition, Task, TaskType, shown_id
from progressor.storage.feed.appending import FeedLetter, feeding_processes
from progressor.storage.params import task_key_columns, timer_columns
from progressor.storage.postgres.arrays import bigints, microseconds, texts
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.server_identity import said_by
from progressor.storage.postgres.sqlstates import Unreadable, judged
from progressor.storage.rows import grouped
from progressor.storage.statements import Params, Row
from progressor.storage.values import Evidence, TaskRef, Zombie, most_cancelled
from progressor.transitions import Lost, decide_lost

log = Logger("progressor.storage.zombies")


def evidence_columns(evidence: Evidence, lease_age: timedelta) -> dict[str, Any]:
    """Return the parameters of a statement that judges workers."""
    return {
        "collector": evidence.worker_id,
        "beats": evidence.beats,
        "since": evidence.since,
        "at": evidence.at,
        "lease_age": lease_age,
    }


class BurialRound(NamedTuple):
    """The result of one transaction: the zombies that were found, and those that were ended."""

    found: Sequence[Row]
    zombies: list[Zombie]


class _Refused(Exception):
    """Raised when PostgreSQL is well and refuses to end the zombies that were found."""

    def __init__(self, found: Sequence[Row], error: Exception) -> None:
        super().__init__(said_by(error))
        self.found = found


async def collect(session: Session, _again: bool, *, params: Params, now: datetime | None) -> BurialRound:
    """Find zombies and end them, in one transaction."""
    async with session.transaction():
        found = await _find(session, params)
        try:
            return BurialRound(found, await _bury(session, found, now) if found else [])
        except (psycopg.Error, Unreadable) as error:
            if not _is_of_one(error):
                raise
            raise _Refused(found, error) from None


async def collected(
    carry: Callable[[Params], Awaitable[BurialRound]],
    params: Params,
    pass_over: Callable[[Row, Exception], None],
) -> list[Zombie]:
    """Return the zombies that one round ends.

    It ends them one by one if PostgreSQL refuses them together.
    """
    zombies: list[Zombie] = []
    limit, after = params["limit"], 0
    while len(zombies) < params["limit"]:
        try:
            found, buried = await carry({**params, "after": after, "limit": limit})
        except _Refused as refused:
            if limit > 1 and len(refused.found) > 1:
                limit = 1
                continue
            pass_over(refused.found[0], refused)
            found, buried = refused.found, []
        zombies += buried
        if limit > 1 or not found:
            break
        after = found[0]["process_no"]
    return zombies


def _is_of_one(error: psycopg.Error | Unreadable) -> bool:
    """Return whether the error may be one zombie's. Not on a full disk: it silences workers that live."""
    if isinstance(error, Unreadable):
        return True
    return judged(error).of_one_item and not isinstance(error, pg.DiskFull)


async def _find(session: Session, params: Params) -> list[Row]:
    """Return the zombies, with their processes locked; StorageUnavailable if steps cannot be saved now."""
    try:
        results = await session.transact({"lock_saved_tables": {}, "find_zombies": params})
    except pg.LockNotAvailable as error:
        # Not repeated until it succeeds: no worker could save a step meanwhile.
        raise StorageUnavailable(f"nobody is judged: {error.diag.message_primary}") from error
    return results["find_zombies"]


# Broken processes that one look for stranded requests reaches.
_LOOKS = 5000
FROM_THE_START = (-1, datetime(1, 1, 2, tzinfo=UTC), -1)
"""The place before all broken processes, in the order of the look."""


class Stranded(NamedTuple):
    """One piece of stranded requests that was cancelled: those with callers, and the reason.

    `place` is the broken process behind which to go on, None at the end of all; `more` if a piece was
    cancelled.
    """

    place: tuple[int, datetime, int] | None
    cancelled: tuple[TaskRef, ...] = ()
    reason: str | None = None
    more: bool = False


async def cancel_stranded(
    session: Session, _again: bool, *, after: tuple[int, datetime, int], now: datetime | None
) -> Stranded:
    """Cancel a piece of the requests on the first broken process that has some left."""
    names = ("namespace_no", "created_at", "process_no")
    looks = {**dict(zip(names, after, strict=True)), "looks": _LOOKS}
    async with session.transaction():
        rows = (await session.transact({"stranded": looks}))["stranded"]
        found = next((row for row in rows if row["waits"]), None)
        if found is None:
            return Stranded(tuple(rows[-1][name] for name in names) if len(rows) else None)
        numbers = {"process_no": bigints([found["process_no"]])}
        params = {**numbers, "most": most_cancelled(1), "now": now}
        rows = (await session.transact({"lock": numbers, "cancel_stranded": params}))["cancel_stranded"]
    refs = grouped(rows, {found["process_no"]: found["namespace"]})
    return Stranded(after, refs.get(found["process_no"], ()), rows[0]["error"] if rows else None, more=True)


class _Verdict(NamedTuple):
    task: Task
    decision: Decision

    @property
    def goes_back(self) -> bool:
        return self.decision.disposition is Disposition.RETRY


async def _bury(session: Session, found: Sequence[Row], now: datetime | None) -> list[Zombie]:
    """Decide on zombies whose processes this transaction has locked, and carry that out; return them."""
    keys = {name: bigints([row[name] for row in found]) for name in ("process_no", "task_id")}
    lost = (await session.transact({"bury_patience": {}, "lost_tasks": keys}))["lost_tasks"]
    tasks = {row["process_no"]: row for row in lost}
    verdicts = {
        row["process_no"]: _judged({**row, **tasks[row["process_no"]]})
        for row in found
        if row["process_no"] in tasks
    }
    ended = [verdict for verdict in verdicts.values() if not verdict.goes_back]
    retried = [verdict for verdict in verdicts.values() if verdict.goes_back]
    statements: dict[str, Params] = {}
    if ended:
        params = {**_end_columns(ended), "now": now, "most": most_cancelled(len(ended))}
        statements |= {"cancel_waiting": params, "end_zombies": params}
        numbers = [verdict.task.process_no for verdict in ended]
        statements |= feeding_processes(FeedLetter.BROKEN, numbers, now=now)
    if retried:
        statements["release"] = {**_retry_columns(retried), "lost": "worker", "now": now}
    results = await session.transact(statements) if statements else {}
    namespaces = {number: verdict.task.namespace for number, verdict in verdicts.items()}
    cancelled = grouped(results.get("cancel_waiting", ()), namespaces)
    return [
        _zombie(verdicts[row["process_no"]], row, cancelled.get(row["process_no"], ()))
        for verb in ("end_zombies", "release")
        for row in results.get(verb, ())
    ]


def _judged(row: Row) -> _Verdict:
    task = Task(
        namespace=row["namespace"],
        process_id=row["process_id"],
        task_id=row["task_id"],
        task_type=TaskType(row["task_type"]),
        name=row["name"],
        args=row["timer_args"],
        scheduled_time=row["scheduled_time"],
        last_retry_interval=row["last_retry_interval"],
        attempts_count=row["attempts_count"] or 0,
        process_no=row["process_no"],
        worker_id=row["worker_id"],
        lease=row["lease"],
    )
    return _Verdict(task, decide_lost(task, Lost(_reason(row), row["zombie_count"] or 0), _options(row)))


def _zombie(verdict: _Verdict, row: Row, cancelled: tuple[TaskRef, ...]) -> Zombie:
    task, decision = verdict
    return Zombie(
        task=TaskRef(task.namespace, task.process_no, task.task_id, row["reply_to"]),
        process_id=task.process_id,
        task_type=task.task_type,
        worker_id=task.worker_id,
        reason=decision.reply.error or "",
        disposition=decision.disposition,
        cancelled=cancelled,
    )


def _options(row: Row) -> NamespaceOptions:
    """Return the options of its namespace for zombies.

    The defaults where they are missing or unreadable.
    """
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
    """Return the reason why the task was taken, for its caller, its trace and the log."""
    worker, lease, limit = shown_id(row["worker_id"]), row["lease_age"], row["step_timeout"]
    if row["seen_at"] is None:
        return f"zombie detected: worker {worker} is gone, for longer than a lease of {_shown(lease)}"
    if row["is_silent"]:
        seen = row["seen_at"].astimezone(UTC).isoformat(sep=" ", timespec="milliseconds")
        return f"zombie detected: worker {worker} was last seen at {seen}, its lease is {_shown(lease)}"
    return f"zombie detected: on worker {worker} it outlived its step_timeout of {_shown(limit)}"


def _shown(age: timedelta) -> str:
    return f"{age.total_seconds():g} s"


def _keys(verdicts: Sequence[_Verdict]) -> dict[str, Any]:
    return {
        **task_key_columns([verdict.task for verdict in verdicts]),
        "detail": texts([verdict.decision.reply.error for verdict in verdicts]),
    }


def _end_columns(verdicts: Sequence[_Verdict]) -> dict[str, Any]:
    decisions = [verdict.decision for verdict in verdicts]
    status = texts([decision.status and decision.status.value for decision in decisions])
    return {**_keys(verdicts), "status": status, **timer_columns(decisions)}


def _retry_columns(verdicts: Sequence[_Verdict]) -> dict[str, Any]:
    intervals = [verdict.decision.retry_interval for verdict in verdicts]
    return {
        **_keys(verdicts),
        "delay": bigints([None if each is None else microseconds(each) for each in intervals]),
    }
