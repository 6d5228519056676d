"""Processes that were exported: copied under other names, and compared."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from progressor.archive.records import (
    EventRecord,
    ProcessRecord,
    TaskRecord,
    WholeProcess,
    write_line,
)
from progressor.archive.wholes import read_wholes
from progressor.inputs import redone_with
from progressor.model import Life
from tests.support import Tables


def lives(tables: Tables) -> list[Life]:
    """All processes there are, in the order of their numbers."""
    rows = tables.execute("SELECT process_no, birth FROM processes ORDER BY process_no")
    return [Life(row["process_no"], row["birth"]) for row in rows]


def renamed(whole: WholeProcess, prefix: str = "copy-") -> WholeProcess:
    """The process under another name, written to lines and read from them."""
    others = [
        record.model_copy(update={"process_id": f"{prefix}{record.process_id}"})
        for record in whole.records()
    ]
    (read,) = read_wholes(map(write_line, others))
    return read


def outline(whole: WholeProcess) -> list[dict[str, Any]]:
    """The records of a process without its name, its tasks numbered from 1, and what ran as waiting.

    Tasks that were deleted, which its events name, are numbered up to 0.
    """
    tasks = {each.task_id for each in whole.tasks}
    deleted = {each.task_id for each in whole.events} - tasks
    places = {task_id: place for place, task_id in enumerate(sorted(tasks), start=1)}
    places |= {task_id: place - len(deleted) for place, task_id in enumerate(sorted(deleted), start=1)}
    shown = []
    for record in whole.records():
        fields = record.model_dump(exclude={"process_id"})
        if fields.get("swept_until") is not None:
            fields["swept_until"] = True
        for name in ("task_id", "corrupted_by"):
            if fields.get(name) is not None:
                fields[name] = places[fields[name]]
        if isinstance(record, TaskRecord):
            redone = redone_with(record.idempotency_key)
            if redone is not None:
                fields["idempotency_key"] = places.get(redone, 0)
        if isinstance(record, TaskRecord) and record.waits:
            fields |= {"status": "waiting", "running_time": None, "worker_id": None, "order_time": None}
        shown.append(fields)
    return shown


def made(process_id: str, *, namespace: str, due: datetime) -> WholeProcess:
    """A process as an export has it: started, called once, with a timer that is due at `due`."""
    its: dict[str, Any] = {"namespace": namespace, "process_id": process_id}
    born = due - timedelta(days=400)
    ended: dict[str, Any] = {"status": "finished", "scheduled_time": born, "finished_time": born}
    tasks = [
        TaskRecord(
            **its, **ended, task_id=1, task_type="init", args=b'{"item":"tea"}', idempotency_key="a"
        ),
        TaskRecord(
            **its,
            **ended,
            task_id=2,
            task_type="call",
            name="pay",
            args=b'{"amount":2}',
            response=b"2",
            idempotency_key="b",
            request_hash=b"hash",
        ),
        TaskRecord(**its, task_id=3, task_type="timeout", status="waiting", scheduled_time=due),
    ]
    facts = {"task_id": 1, "timestamp": born, "metadata": {"name": "placed"}}
    events = [EventRecord(**its, **facts, event_id=n, payload=b'{"n":%d}' % n) for n in (1, 2, 3)]
    state: dict[str, Any] = {"state": b'{"item":"tea","paid":2}', "last_event_id": len(events)}
    process = ProcessRecord(
        **its, **state, created_at=born, status="running", previous_status="init", status_changed_at=born
    )
    return WholeProcess(process, tasks, events, [])
