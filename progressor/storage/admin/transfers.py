"""Transfers: processes read whole, a page in one snapshot, and written whole, a batch in one transaction.

Rule: what is imported is the process that was exported, but for its numbers: tasks get new ones, in their
order. What ran waits, and is run again. A process whose name is taken is left alone.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import TypeVar

from progressor.acts import Act, Deed
from progressor.archive.pages import ImportOutcome
from progressor.archive.records import (
    EventRecord,
    MessageRecord,
    ProcessRecord,
    TaskRecord,
    WholeProcess,
)
from progressor.inputs import redo_key, redone_with
from progressor.model import Life, ProcessStatus, TaskStatus
from progressor.storage.admin.audit import Audited, noting_all
from progressor.storage.feed.appending import FeedLetter, feeding_processes
from progressor.storage.params import json_text
from progressor.storage.postgres.arrays import (
    bigints,
    blobs,
    booleans,
    columns_of,
    jsons,
    microseconds,
    texts,
    timestamps,
)
from progressor.storage.postgres.pipeline import Session
from progressor.storage.statements import Params, Results, Row, Transaction
from progressor.supervision import in_thread

R = TypeVar("R", TaskRecord, EventRecord, MessageRecord)

# Rows of one statement.
_ROWS = 5_000


@dataclass(slots=True)
class _Arrival:
    """A process on its way into the tables. `numbers`: of each of its tasks the new number."""

    whole: WholeProcess
    birth: int = field(default_factory=partial(secrets.randbits, 62))
    numbers: dict[int, int] = field(default_factory=dict)
    row: Row = field(default_factory=dict)

    def new_number(self, task_id: int | None) -> int | None:
        return None if task_id is None else self.numbers[task_id]


class Transfers(Audited):
    """The operations that read and write processes whole."""

    async def fitting(self, lives: Sequence[Life], *, rows: int, size: int) -> int:
        """Return how many of the first of these processes have together so many tasks and events, or fewer.

        Their values have together `size` bytes or fewer. The first one counts, whatever it has.
        """
        numbers = bigints([life.process_no for life in lives])
        found = await self._rows("whole_sizes", process_no=numbers, most=rows)
        many = accumulate(row["many"] for row in found)
        sizes = accumulate(row["bytes"] for row in found)
        return max(1, sum(1 for a, b in zip(many, sizes, strict=True) if a <= rows and b <= size))

    async def whole(self, lives: Sequence[Life]) -> list[WholeProcess]:
        """Return these processes with all that belongs to them, as of one moment; not those gone by now."""

        async def attempt(session: Session, _again: bool) -> Results:
            async with session.transaction(opening="begin_snapshot"):
                numbers = {"process_no": bigints([life.process_no for life in lives])}
                births = {"birth": bigints([life.birth for life in lives])}
                found = await session.transact({"whole_processes": {**numbers, **births}})
                there = [row["process_no"] for row in found["whole_processes"]]
                names = ("whole_tasks", "whole_events", "whole_messages")
                its: Transaction = {name: {"process_no": bigints(there)} for name in names}
                return {**found, **await session.transact(its)}

        found = await self._run("whole", attempt)
        # In a thread: there may be thousands of rows, and others are served in the meantime.
        return await in_thread("export", partial(_wholes, found))

    async def import_processes(
        self, wholes: Sequence[WholeProcess], *, acts: Sequence[Act] = (), now: datetime | None = None
    ) -> list[ImportOutcome]:
        """Write processes, all or none but those whose names are taken; return an outcome for each.

        No two may have the same name. There is an act for each of them, or none at all.
        """
        arrivals = [_Arrival(whole) for whole in wholes]

        async def attempt(session: Session, again: bool) -> list[ImportOutcome]:
            async with session.transaction():
                await _enter(session, arrivals)
                new = [each for each in arrivals if each.row["process_no"] is not None]
                for statements in _pieces(new, now):
                    await session.transact(statements)
                if new:
                    numbers = [each.row["process_no"] for each in new]
                    await session.transact(feeding_processes(FeedLetter.CREATED, numbers, now=now))
                if acts:
                    await session.transact(noting_all(_noted(arrivals, acts), now))
            # A name that is taken was perhaps taken by our own first try.
            own = await _rows(session, {"import_own": _process_columns(arrivals)}) if again else []
            births = {row["birth"] for row in own}
            return [_outcome(each.row, is_own=each.birth in births) for each in arrivals]

        return await self._run("import", attempt)


def _noted(arrivals: Sequence[_Arrival], acts: Sequence[Act]) -> list[tuple[Act, Deed]]:
    return [
        (act, Deed(each.whole.process.namespace, each.whole.process.process_id))
        for each, act in zip(arrivals, acts, strict=True)
        if each.row["process_no"] is not None
    ]


def _outcome(row: Row, *, is_own: bool) -> ImportOutcome:
    if not row["is_served"]:
        return ImportOutcome.NO_NAMESPACE
    is_new = row["process_no"] is not None or is_own
    return ImportOutcome.IMPORTED if is_new else ImportOutcome.TAKEN


def _wholes(found: Results) -> list[WholeProcess]:
    tasks = _by_process(found["whole_tasks"])
    events = _by_process(found["whole_events"])
    messages = _by_process(found["whole_messages"])
    wholes = []
    for row in found["whole_processes"]:
        process_no = row.pop("process_no")
        its = {"namespace": row["namespace"], "process_id": row["process_id"]}
        wholes.append(
            WholeProcess(
                ProcessRecord(**row),
                [TaskRecord(**its, **each) for each in tasks[process_no]],
                [EventRecord(**its, **each) for each in events[process_no]],
                [MessageRecord(**its, **each) for each in messages[process_no]],
            )
        )
    return wholes


def _by_process(rows: Sequence[Row]) -> defaultdict[int, list[Row]]:
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.pop("process_no")].append(row)
    return found


async def _enter(session: Session, arrivals: Sequence[_Arrival]) -> None:
    """Insert the processes whose names are free, and give each its row, and its tasks their numbers."""
    drawing: Transaction = {"draw_tasks": {"many": sum(len(each.whole.tasks) for each in arrivals)}}
    drawn = iter(await _rows(session, drawing))
    for each in arrivals:
        each.numbers = {task.task_id: next(drawn)["task_id"] for task in each.whole.tasks}
        gone = _deleted(each.whole)
        # Below all numbers that a task has: no task was ever deleted here.
        each.numbers |= {task_id: place - len(gone) for place, task_id in enumerate(gone, start=1)}
    params = _process_columns(arrivals)
    groups: Transaction = {"import_groups": params} if any(e.whole.process.group for e in arrivals) else {}
    found = await session.transact({**groups, "import_processes": params})
    for each, row in zip(arrivals, found["import_processes"], strict=True):
        each.row = row


async def _rows(session: Session, statement: Transaction) -> list[Row]:
    (rows,) = (await session.transact(statement)).values()
    return rows


def _deleted(whole: WholeProcess) -> list[int]:
    """Return the numbers of deleted tasks that a process still knows, in order."""
    known = {each.task_id for each in whole.events} | {each.task_id for each in whole.messages}
    redone = (redone_with(each.idempotency_key) for each in whole.tasks)
    known.update(task_id for task_id in redone if task_id is not None)
    return sorted(known.difference(each.task_id for each in whole.tasks))


def _process_columns(arrivals: Sequence[_Arrival]) -> Params:
    processes = [each.whole.process for each in arrivals]
    return {
        **columns_of(texts, processes, "namespace", "process_id", "status", "previous_status", "detail"),
        **columns_of(timestamps, processes, "created_at", "status_changed_at", "rests_until"),
        **columns_of(bigints, processes, "last_event_id", "first_event_id"),
        **columns_of(blobs, processes, "state"),
        "birth": bigints([each.birth for each in arrivals]),
        "corrupted_by": bigints([each.new_number(each.whole.process.corrupted_by) for each in arrivals]),
        "metadata": jsons([json_text(p.metadata) for p in processes]),
        "swept_until": bigints([None if p.swept_until is None else 0 for p in processes]),
        "group_key": texts([p.group for p in processes]),
    }


def _pieces(new: Sequence[_Arrival], now: datetime | None) -> Iterator[Transaction]:
    """Yield the statements that insert what belongs to new processes, in pieces of bounded size."""
    for tasks in _cut(new, lambda whole: whole.tasks):
        yield {"import_tasks": _task_columns(tasks)}
    # Of a process all at once: which is the next is seen among them.
    waiting = [(each, task) for each in new for task in each.whole.tasks if task.waits]
    if waiting:
        yield {"import_schedule": {**_schedule_columns(waiting), "now": now}}
    for events in _cut(new, lambda whole: whole.events):
        yield {"import_events": _event_columns(events)}
    for messages in _cut(new, lambda whole: whole.messages):
        yield {"import_messages": _message_columns(messages)}


def _cut(
    new: Sequence[_Arrival], of: Callable[[WholeProcess], list[R]]
) -> Iterator[list[tuple[_Arrival, R]]]:
    all_of_them = [(each, record) for each in new for record in of(each.whole)]
    for place in range(0, len(all_of_them), _ROWS):
        yield all_of_them[place : place + _ROWS]


def _numbers(items: Sequence[tuple[_Arrival, R]]) -> Params:
    return {
        "process_no": bigints([arrival.row["process_no"] for arrival, _ in items]),
        "task_id": bigints([arrival.numbers[record.task_id] for arrival, record in items]),
    }


def _task_columns(items: Sequence[tuple[_Arrival, TaskRecord]]) -> Params:
    tasks = [task for _, task in items]
    return {
        **_numbers(items),
        **columns_of(texts, tasks, "task_type", "name", "error", "trace"),
        **columns_of(blobs, tasks, "args", "context", "response", "request_hash"),
        **columns_of(timestamps, tasks, "scheduled_time", "finished_time", "expires_at"),
        **columns_of(bigints, tasks, "attempts_count", "zombie_count", "priority"),
        "status": texts([TaskStatus.WAITING if t.waits else t.status for t in tasks]),
        "idempotency_key": texts([_new_key(arrival, task) for arrival, task in items]),
        "running_time": timestamps([None if t.waits else t.running_time for t in tasks]),
        "last_retry_interval": bigints(
            [None if t.last_retry_interval is None else microseconds(t.last_retry_interval) for t in tasks]
        ),
        "worker_id": bigints([None if t.waits else t.worker_id for t in tasks]),
    }


def _new_key(arrival: _Arrival, task: TaskRecord) -> str | None:
    redone = redone_with(task.idempotency_key)
    return task.idempotency_key if redone is None else redo_key(arrival.numbers[redone])


def _schedule_columns(items: Sequence[tuple[_Arrival, TaskRecord]]) -> Params:
    arrivals = [arrival for arrival, _ in items]
    tasks = [task for _, task in items]
    return {
        **_numbers(items),
        "namespace_no": bigints([each.row["namespace_no"] for each in arrivals]),
        "group_no": bigints([each.row["group_no"] for each in arrivals]),
        "is_broken": booleans([e.whole.process.status is ProcessStatus.ERROR for e in arrivals]),
        "rests_until": timestamps([each.whole.process.rests_until for each in arrivals]),
        **columns_of(texts, tasks, "task_type"),
        **columns_of(timestamps, tasks, "scheduled_time", "order_time"),
        "timer": texts([(t.name or "") if t.task_type.is_timer else "" for t in tasks]),
    }


def _event_columns(items: Sequence[tuple[_Arrival, EventRecord]]) -> Params:
    events = [event for _, event in items]
    return {
        **_numbers(items),
        "event_id": bigints([e.event_id for e in events]),
        "timestamp": timestamps([e.timestamp for e in events]),
        "event_metadata": jsons([json_text(e.metadata) for e in events]),
        "event_payload": blobs([e.payload for e in events]),
    }


def _message_columns(items: Sequence[tuple[_Arrival, MessageRecord]]) -> Params:
    messages = [message for _, message in items]
    return {
        **_numbers(items),
        **columns_of(bigints, messages, "n", "attempts"),
        **columns_of(timestamps, messages, "created_at", "due"),
        **columns_of(texts, messages, "task_type", "to_namespace", "to_process_id", "name"),
        **columns_of(texts, messages, "idempotency_key", "trace"),
        **columns_of(blobs, messages, "request_hash", "args"),
        "metadata": jsons([json_text(m.metadata) for m in messages]),
    }
