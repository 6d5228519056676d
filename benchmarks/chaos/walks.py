"""The retention walks of a run: what they delete is kept aside, in the transaction that deletes it.

Rule: nothing of this is in the product. Times of seconds, and statements that keep what they delete, are
built into the processes that walk. So the record is whole: what is left, and what was deleted.
"""

# ruff: noqa: SLF001 - the times are built into the inside of things

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from benchmarks.chaos.ledger import ACCOUNTS
from benchmarks.chaos.limits import COOKS, METERS
from benchmarks.chaos.server import Server
from progressor import Client, Event, Retention, TaskStatus, TaskType, TraceEntry
from progressor.storage.admin import archiving, retention
from progressor.storage.statements import STATEMENTS, Row

# What walks delete of the first two is archived first.
ARCHIVED = (ACCOUNTS, COOKS)
WALKED = (*ARCHIVED, METERS)
# Far longer than a caller waits for an answer, far shorter than some faults take.
KEPT = timedelta(seconds=10)
KEPT_EVENTS = 5
_OFTEN = timedelta(seconds=1)
# Whoever claimed a walk and died has it no longer.
_CLAIMED = timedelta(seconds=3)

_EDITS = {
    "sweep_tasks": (
        "RETURNING t.process_no, t.task_id\n)",
        (
            "RETURNING t.*\n), kept AS (INSERT INTO bank.swept_tasks "
            "SELECT clock_timestamp(), g.* FROM gone AS g)"
        ),
    ),
    "sweep_events": (
        "RETURNING e.process_no, e.event_id\n)",
        (
            "RETURNING e.*\n), kept AS (INSERT INTO bank.swept_events "
            "SELECT clock_timestamp(), p.last_event_id, g.* FROM gone AS g "
            "JOIN progressor.processes AS p ON p.process_no = g.process_no)"
        ),
    ),
}
_TASKS = """
SELECT
    n.name, p.process_id, t.swept_at, t.task_id, t.task_type::text, t.status::text, t.name, t.response,
    t.error, t.idempotency_key, t.scheduled_time, t.running_time, t.finished_time,
    coalesce(t.attempts_count, 0), t.last_retry_interval
FROM bank.swept_tasks AS t
JOIN progressor.processes AS p USING (process_no)
JOIN progressor.namespaces AS n USING (namespace_no)
"""
_EVENTS = """
SELECT n.name, p.process_id, e.last_event_id, e.payload, e.metadata, e.event_id, e.timestamp, e.task_id
FROM bank.swept_events AS e
JOIN progressor.processes AS p USING (process_no)
JOIN progressor.namespaces AS n USING (namespace_no)
"""

_SWEPT = """
FROM {table} JOIN progressor.processes USING (process_no)
JOIN progressor.namespaces AS n USING (namespace_no)
WHERE n.name = ANY (%s)
"""
# 2, 1 or 0: no walk has deleted tasks, or no events, of what is archived.
UNWALKED = "SELECT " + " + ".join(
    f"(NOT EXISTS (SELECT {_SWEPT.format(table=table)}))::int"
    for table in ("bank.swept_tasks", "bank.swept_events")
)


def shorten() -> None:
    """Have this process walk every second, keep for seconds, and keep aside what it deletes."""

    def short(row: Row) -> tuple[Retention, None]:
        archive = row["archive"]
        return Retention.model_construct(tasks=KEPT, keys=KEPT, events=KEPT_EVENTS, archive=archive), None

    retention.policy_of = archiving.policy_of = short
    retention._OFTEN = _OFTEN
    archiving.PUT_OFF = _CLAIMED
    for verb, (deletes, keeps) in _EDITS.items():
        if deletes not in STATEMENTS[verb]:
            raise RuntimeError(f"{verb}: no {deletes!r} found")
        STATEMENTS[verb] = STATEMENTS[verb].replace(deletes, keeps)


async def begin(bank: Client) -> None:
    """Have walks go through accounts, meters and cooks, by the times that are built into the walker."""
    for namespace in WALKED:
        kept = Retention(tasks=timedelta(hours=1), events=KEPT_EVENTS, archive=namespace in ARCHIVED)
        await bank.set_retention(namespace, kept)


@dataclass
class SweptRows:
    """All that walks have deleted of one process; `faults`: what they should have left."""

    tasks: list[TraceEntry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def task_ids(self) -> set[int]:
        """The numbers of the tasks."""
        return {entry.task_id for entry in self.tasks}


def read_swept(server: Server) -> dict[tuple[str, str], SweptRows]:
    """All that was kept aside, by namespace and process."""
    found: defaultdict[tuple[str, str], SweptRows] = defaultdict(SweptRows)
    for namespace, process, swept_at, *row in server.query(_TASKS):
        entry = _entry(*row)
        found[namespace, process].tasks.append(entry)
        if entry.finished_time is None or swept_at - entry.finished_time <= KEPT:
            found[namespace, process].faults.append(
                f"task {entry.task_id} ({entry.status}) of {entry.finished_time}, deleted at {swept_at}"
            )
    for namespace, process, last, payload, *event in server.query(_EVENTS):
        found[namespace, process].events.append(Event(json.loads(payload), *event))
        if event[1] > last - KEPT_EVENTS:
            found[namespace, process].faults.append(f"event {event[1]} deleted, of {last}")
    return found


def _entry(
    task_id: int,
    task_type: str,
    status: str,
    name: str | None,
    response: bytes | None,
    error: str | None,
    key: str | None,
    scheduled: datetime,
    running: datetime | None,
    finished: datetime | None,
    attempts: int,
    interval: timedelta | None,
) -> TraceEntry:
    """A deleted task as a trace showed it."""
    refused = status == TaskStatus.ERROR or response is None
    answer: Any = None if refused else json.loads(response or b"null")
    return TraceEntry(
        task_id=task_id,
        task_type=TaskType(task_type),
        status=TaskStatus(status),
        name=name,
        args=None,
        response=answer,
        error=error,
        idempotency_key=key,
        context=None,
        scheduled_time=scheduled,
        running_time=running,
        finished_time=finished,
        attempts_count=attempts,
        last_retry_interval=interval,
        worker_id=None,
        events=(),
    )
