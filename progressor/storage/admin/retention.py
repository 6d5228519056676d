"""Retention: walks through the processes of a namespace that delete what has ended long enough ago.

Rule: a round is one transaction. It holds the row of its walk, so no two walk through one namespace at
once, and a dead runner loses it; what it deletes and how far it came commit together. What a process may
have lost is noted in its row: the first event that is left, and the number up to which tasks may be gone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import LockNotAvailable
from pydantic import ValidationError

from progressor.acts import Act, Deed
from progressor.config import FOR_EVER, Retention
from progressor.errors import InvalidRequest
from progressor.monitoring import KnownRetention, RetentionEstimate
from progressor.outages import in_one_line
from progressor.storage.admin.audit import Audited
from progressor.storage.admin.sweeps import Round, Walk, run_round
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.server_identity import said_by
from progressor.storage.postgres.sqlstates import judged
from progressor.storage.rows import record_of
from progressor.storage.statements import Row

# So many rows that a walk looks at count as one that it deletes, for its pace.
_READS_OF_A_ROW = 20
# Pages of each table that an estimate reads.
_SAMPLED = 2_000
# The times from the begin of a walk to that of the next.
_SELDOM, _OFTEN = timedelta(days=1), timedelta(minutes=10)
# The time for which a walk is left alone that failed, or that another sweeper archives.
PUT_OFF = timedelta(minutes=5)


class Swept(NamedTuple):
    """The rows that one round deleted; `is_over`: the walk has ended.

    `fault`: why the namespace keeps everything, if its times cannot be read. `damage`: what PostgreSQL said
    of rows that it could not read; the walk goes on in some minutes, and others go on meanwhile.
    """

    namespace: str
    tasks: int
    events: int
    is_over: bool
    fault: str | None = None
    damage: str | None = None


class Retentions(Audited):
    """The operations of retention."""

    async def retention(self, namespace: str) -> KnownRetention | None:
        """Return for how long a namespace keeps what has ended; None if there is no such namespace."""
        rows = await self._rows("retention", namespace=namespace)
        if not rows:
            return None
        policy, fault = policy_of(rows[0])
        return record_of(KnownRetention, {**rows[0], **_columns(policy)}, fault=fault)

    async def set_retention(
        self,
        namespace: str,
        wanted: Retention | None,
        *,
        act: Act | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Keep what has ended for these times, or as the code says again; return False if it is unknown."""
        said = _columns(FOR_EVER if wanted is None else wanted)
        params = {"namespace": namespace, "is_set": wanted is not None, "now": now, **said}
        deed = Deed(namespace, detail=_shown(wanted))
        return await self._done("set_retention", params, act, deed, now=now)

    async def begin_sweep(
        self, namespace: str, *, act: Act | None = None, now: datetime | None = None
    ) -> bool:
        """Have a walk begin now; return False if there is no such namespace."""
        params = {"namespace": namespace, "now": now}
        return await self._done("begin_sweep", params, act, Deed(namespace), now=now)

    async def next_sweep(self, *, archives: bool = False, now: datetime | None = None) -> timedelta | None:
        """Return the time until the next round of a walk is due; None if there is none.

        With `archives` it may be one into an archive.
        """
        rows = await self._rows("next_sweep", archives=archives, now=now)
        due_in: timedelta | None = rows[0]["due_in"] if rows else None
        return due_in

    async def sweep(
        self, *, rate: float, namespace: str | None = None, now: datetime | None = None
    ) -> Swept | None:
        """Run one round of the walk that is due, of any namespace or this one; None if none is due.

        The next round is due when so much was deleted at `rate`, in rows a second. Twenty rows that were
        looked at count as one.
        """

        async def run(session: Session, *, waits: bool) -> Swept | None:
            walks: list[Row] = []
            try:
                async with session.transaction():
                    # A round deletes nothing before there is a mark that is younger than what it deletes.
                    first = {"enrol_namespaces": {"now": now}, "mark_tasks": {"now": now}}
                    found = await session.transact(
                        {**first, "lock_sweep": {"now": now, "namespace": namespace, "archive": False}}
                    )
                    walks = found["lock_sweep"]
                    return await _carry(session, walks[0], rate, waits=waits) if walks else None
            except psycopg.Error as error:
                if not walks or not judged(error).is_damage:
                    raise
                await _put_off(session, walks[0]["namespace"], now)
                return Swept(walks[0]["namespace"], 0, 0, is_over=False, damage=said_by(error))

        async def attempt(session: Session, _again: bool) -> Swept | None:
            try:
                return await run(session, waits=True)
            except LockNotAvailable:
                # Nothing of it was done. A step holds the first process for long.
                return await run(session, waits=False)

        return await self._run("sweep", attempt)

    async def estimate_retention(
        self, namespace: str, wanted: Retention, *, now: datetime | None = None
    ) -> RetentionEstimate:
        """Return an estimate of what a retention would delete now, from a sample of the tables' pages."""
        (pages,) = await self._rows("sample_pages", now=now)
        bounds = bounds_of(wanted, pages["now"])
        found: dict[str, int] = {}
        shares = {table: min(1.0, _SAMPLED / max(1, pages[table])) for table in ("tasks", "events")}
        for table, share in shares.items():
            statement = f"sample_{table}"
            params = {"millionths": math.ceil(share * 1_000_000), "namespace": namespace, **bounds}
            (row,) = await self._rows(statement, **params)
            found |= {name: round(value / share) for name, value in row.items()}
        return RetentionEstimate(namespace, **found, is_exact=min(shares.values()) == 1)


async def _carry(session: Session, row: Row, rate: float, *, waits: bool) -> Swept:
    (policy, fault), (walk, is_first) = policy_of(row), walk_of(row)
    done = Round(walk, is_over=True)
    if not policy.is_for_ever:
        bounds = bounds_of(policy, walk.began_at or walk.now)
        done = await run_round(session, walk, bounds, rate=rate, waits=waits)
    await session.transact({"note_sweep": note_of(done, policy, is_first, rate)})
    return Swept(walk.namespace, done.tasks, done.events, done.is_over, fault)


async def _put_off(session: Session, namespace: str, now: datetime | None) -> None:
    """Let the walk of a namespace go on where it stands, in some minutes."""
    async with session.transaction():
        due = {"now": now, "namespace": namespace, "archive": False}
        for row in (await session.transact({"lock_sweep": due}))["lock_sweep"]:
            (policy, _), (walk, is_first) = policy_of(row), walk_of(row)
            note = note_of(Round(walk), policy, is_first, rate=1.0)
            await session.transact({"note_sweep": {**note, "next_at": walk.now + PUT_OFF}})


def walk_of(row: Row) -> tuple[Walk, bool]:
    """Return the walk of a row, and True if it begins with this round."""
    walk = record_of(Walk, row)
    if walk.began_at is not None:
        return walk, False
    return replace(walk, began_at=walk.now, tasks_deleted=0, events_deleted=0), True


def note_of(done: Round, policy: Retention, is_first: bool, rate: float) -> dict[str, Any]:
    """Return the row of a walk after a round."""
    walk = done.walk
    work = done.tasks + done.events + done.reads / _READS_OF_A_ROW
    due = walk.now + timedelta(seconds=work / rate)
    if done.is_over:
        due = max(due, (walk.began_at or walk.now) + _interval(policy))
    return {
        "namespace_no": walk.namespace_no,
        # The bound of the next walk is that of its own first round.
        "began_at": walk.began_at,
        "is_over": done.is_over,
        "is_first": is_first,
        "now": walk.now,
        "cursor_at": None if done.is_over else walk.cursor_at,
        "cursor_no": 0 if done.is_over else walk.cursor_no,
        "cursor_task": 0 if done.is_over else walk.cursor_task,
        "tasks_deleted": walk.tasks_deleted + done.tasks,
        "events_deleted": walk.events_deleted + done.events,
        "passed_by": done.passed_by,
        "next_at": due,
    }


def _interval(policy: Retention) -> timedelta:
    """Return the time from one walk to the next: a twentieth of what is kept shortest, within bounds."""
    times = [each for each in (policy.tasks, policy.events) if isinstance(each, timedelta)]
    return min(_SELDOM, max(_OFTEN, min(times) / 20)) if times else timedelta(hours=1)


def bounds_of(policy: Retention, now: datetime) -> dict[str, Any]:
    """Return the parameters that say what is old at this time."""
    said = _columns(policy)
    before = {
        name: None if said[name] is None else now - said[name] for name in ("tasks", "keys", "events_for")
    }
    return {
        "tasks_before": before["tasks"],
        "keys_before": before["keys"] or before["tasks"],
        "events_before": before["events_for"],
        "events_last": said["events_last"],
    }


def _columns(policy: Retention) -> dict[str, Any]:
    """Return a retention as the columns of its row."""
    events = policy.events
    return {
        "tasks": policy.tasks,
        "keys": policy.keys,
        "events_for": events if isinstance(events, timedelta) else None,
        "events_last": events if isinstance(events, int) else None,
        "archive": policy.archive,
    }


def _shown(wanted: Retention | None) -> str:
    """Return a retention on one line, for the audit."""
    if wanted is None:
        return "as the code says"
    said = wanted.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return ", ".join(f"{name} {value}" for name, value in said.items()) or "for ever"


def policy_of(row: Row) -> tuple[Retention, str | None]:
    """Return for how long a namespace keeps what has ended.

    Times that this release cannot read keep everything: a newer one may have written them, or a hand. Then
    the second value names what is wrong with them.
    """
    try:
        if row["said"] is not None:
            return Retention.model_validate_json(row["said"]), None
        events = row["events_last"] if row["events_for"] is None else row["events_for"]
        of_row = {name: row[name] for name in ("tasks", "keys", "archive")}
        return Retention(**of_row, events=events), None
    except (InvalidRequest, ValidationError) as error:
        return FOR_EVER, in_one_line(str(error))
