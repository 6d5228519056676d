"""What Storage promises, in dicts: the oracle of test_storage_model.

Rule: a process is its tasks in the order of their acceptance, each with a status. What runs, what waits,
what is blocked and what may be claimed is derived from that; nothing is kept twice, and nothing is locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from progressor.model import Disposition, ProcessStatus, SetTimer, TaskStatus, TaskType
from progressor.storage.items import Answer, Import, Refused, Request, Step

Key = tuple[str, str]
Rows = dict[str, list[tuple[Any, ...]]]
WAITING, RUNNING, FINISHED = TaskStatus.WAITING, TaskStatus.RUNNING, TaskStatus.FINISHED
TIMER = {False: TaskType.TIMEOUT, True: TaskType.REMOVE}


@dataclass(eq=False)
class Task:
    """A task; `task_id` is taken over from the tables when they first show it."""

    key: Key
    task_type: TaskType
    scheduled_time: datetime
    request: Request | None = None
    idempotency_key: str | None = None
    status: TaskStatus = WAITING
    task_id: int = 0
    running_time: datetime | None = None
    finished_time: datetime | None = None
    response: bytes | None = None
    error: str | None = None
    attempts: int = 0
    interval: timedelta | None = None
    worker: str | None = None
    lease: int | None = None
    orphaned: bool = False

    @property
    def reply_to(self) -> str | None:
        return (self.request.metadata or {}).get("reply_to") if self.request else None

    def run(self, worker: str, lease: int, now: datetime) -> None:
        self.status, self.worker, self.lease, self.running_time = RUNNING, worker, lease, now

    def end(self, status: TaskStatus, now: datetime, error: str | None = None) -> None:
        self.status, self.finished_time, self.error = status, now, error


@dataclass(eq=False)
class Process:
    """A process, without its tasks; its events are the tasks that made them."""

    created_at: datetime
    status: ProcessStatus = ProcessStatus.INIT
    changed_at: datetime | None = None
    previous: ProcessStatus | None = None
    detail: str | None = None
    aux_state: bytes | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    corrupted_by: Task | None = None
    events: list[Task] = field(default_factory=list)

    def become(self, status: ProcessStatus, now: datetime, detail: str | None, by: Task | None) -> None:
        if status is not self.status:
            self.previous, self.status, self.changed_at = self.status, status, now
        self.detail, self.corrupted_by = detail, by


@dataclass
class Policy:
    """What a namespace's row says."""

    paused: bool = False
    on_zombie: str = "error"
    max_attempts: int | None = 2
    step_timeout: timedelta = timedelta(seconds=60)


class Ended(NamedTuple):
    """What save_result answers: the continuation, when the timer is due, who must be told."""

    continuation: Task | None
    due: datetime | None
    told: set[int]


class Oracle:
    """All of Storage: one method per verb, one item at a time."""

    def __init__(self, namespaces: Iterable[str]) -> None:
        self.processes: dict[Key, Process] = {}
        self.tasks: dict[Key, list[Task]] = {}
        self.policies = {name: Policy() for name in namespaces}
        self.seen: dict[str, datetime] = {}

    # What is derived.

    def all_tasks(self) -> list[Task]:
        return [task for tasks in self.tasks.values() for task in tasks]

    def running(self, key: Key) -> Task | None:
        return next((t for t in self.tasks.get(key, ()) if t.status is RUNNING), None)

    def waiting(self, key: Key) -> list[Task]:
        """Requests in their order, then the timer."""
        found = [task for task in self.tasks.get(key, ()) if task.status is WAITING]
        return sorted(found, key=lambda task: task.task_type.is_timer)

    def next(self, key: Key) -> Task | None:
        waiting = self.waiting(key)
        return waiting[0] if waiting and self.running(key) is None else None

    def timer(self, key: Key) -> Task | None:
        return next((task for task in self.waiting(key) if task.task_type.is_timer), None)

    # The verbs.

    def prepare(self, asked: Request, now: datetime) -> Task | tuple[Refused, str | None]:
        """The task of this request, new or not; or why there is none."""
        key = (asked.namespace, asked.process_id)
        known = [t for t in self.tasks.get(key, ()) if t.idempotency_key == asked.idempotency_key]
        if known:
            same = known[0].request is not None and known[0].request.request_hash == asked.request_hash
            return known[0] if same else (Refused.CONFLICT, None)
        refusal = self._refusal(asked, self.processes.get(key))
        if refusal is not None:
            return refusal
        if asked.task_type is TaskType.INIT:
            self.processes[key] = Process(now, changed_at=now)
        task = self._add(key, asked.task_type, now, asked)
        task.lease = asked.lease
        if asked.worker_id and self.next(key) is task and not self.policies[key[0]].paused:
            task.run(asked.worker_id, asked.lease, now)
        return task

    def _refusal(self, asked: Request, process: Process | None) -> tuple[Refused, str | None] | None:
        key = (asked.namespace, asked.process_id)
        if asked.task_type is TaskType.INIT:
            return (Refused.EXISTS, None) if process else None
        if process is None:
            return Refused.NOT_FOUND, None
        broken = process.status is ProcessStatus.ERROR
        if asked.task_type is TaskType.REPAIR:
            free = broken and not self.running(key) and not self.waiting(key)
            return None if free else (Refused.NOT_BROKEN, process.detail)
        return (Refused.BROKEN, process.detail) if broken else None

    def _add(self, key: Key, kind: TaskType, due: datetime, asked: Request | None = None) -> Task:
        task = Task(key, kind, due, asked, asked.idempotency_key if asked else None)
        self.tasks.setdefault(key, []).append(task)
        return task

    def simple_repair(self, asked: Request, now: datetime) -> Task | tuple[Refused, str | None]:
        key = (asked.namespace, asked.process_id)
        before = len(self.tasks.get(key, ()))
        task = self.prepare(asked, now)
        if isinstance(task, Task) and len(self.tasks[key]) > before:
            process = self.processes[key]
            broken_by = process.corrupted_by
            task.running_time, task.response = now, b"null"
            task.end(FINISHED, now)
            process.become(ProcessStatus.RUNNING, now, None, None)
            if broken_by is not None and broken_by.task_type.is_timer:
                self._add(key, broken_by.task_type, now)
        return task

    def save(self, step: Step, now: datetime) -> Ended | None:
        """None: the lease was lost."""
        key = (step.task.namespace, step.task.process_id)
        task, decision = self.running(key), step.decision
        if task is None or (task.task_id, task.worker, task.lease) != (
            step.task.task_id,
            step.task.worker_id,
            step.task.lease,
        ):
            return None
        process, told = self.processes[key], set[int]()
        answer = Answer.of(decision.reply)
        task.response, broken_by = answer.response, process.corrupted_by
        if decision.disposition is Disposition.RETRY:
            task.status, task.error = WAITING, answer.error
            task.attempts, task.interval = task.attempts + 1, decision.retry_interval
            task.scheduled_time = now + (decision.retry_interval or timedelta())
        else:
            task.end(TaskStatus.ERROR if answer.error else FINISHED, now, answer.error)
        if decision.disposition is Disposition.REMOVE:
            return Ended(None, None, self._delete(key, keep=task))
        if decision.disposition is Disposition.FAIL:
            told = self._cancel(self.waiting(key), now, answer.error)
        if decision.status is not None:
            broken = decision.status is ProcessStatus.ERROR
            process.become(decision.status, now, answer.error if broken else None, task if broken else None)
            process.aux_state = process.aux_state if decision.aux_state is None else decision.aux_state
            process.metadata = process.metadata if decision.metadata is None else decision.metadata
        process.events += [task] * len(decision.events)
        self._set_timer(key, step, broken_by, now)
        return self._go_on(key, step, now)._replace(told=told)

    def _set_timer(self, key: Key, step: Step, broken_by: Task | None, now: datetime) -> None:
        disposition, old = step.decision.disposition, self.timer(key)
        new: tuple[TaskType, datetime] | None = None
        if isinstance(step.decision.timer, SetTimer) and disposition is Disposition.CONTINUE:
            new = TIMER[step.decision.timer.remove], due_of(step.decision.timer, now)
        elif disposition is Disposition.RERUN and broken_by and broken_by.task_type.is_timer:
            new = broken_by.task_type, now
        if old is not None and (new is not None or disposition is Disposition.SUSPEND):
            old.end(TaskStatus.CANCELLED, now, "timer replaced" if new else "timer unset")
        if new is not None:
            self._add(key, *new)

    def _go_on(self, key: Key, step: Step, now: datetime) -> Ended:
        following = self.next(key)
        if following is None:
            return Ended(None, None, set())
        timer = following.task_type.is_timer
        is_due = not timer or following.scheduled_time <= now
        retried = step.decision.disposition is Disposition.RETRY
        if step.keeps_slot and is_due and not (timer and retried) and not self.policies[key[0]].paused:
            following.run(step.task.worker_id, step.task.lease + 1, now)
            return Ended(following, None, set())
        return Ended(None, following.scheduled_time if timer else None, set())

    def _cancel(self, tasks: Iterable[Task], now: datetime, reason: str | None) -> set[int]:
        found = list(tasks)
        for task in found:
            task.end(TaskStatus.CANCELLED, now, reason)
        return {task.task_id for task in found if task.reply_to}

    def _delete(self, key: Key, keep: Task | None = None) -> set[int]:
        del self.processes[key]
        kept = [task for task in self.tasks[key] if task.orphaned]
        if keep is not None:
            # Its own answer, and those of the last day.
            oldest = keep.finished_time - timedelta(days=1)
            for task in self.tasks[key]:
                if task is keep or (
                    task.idempotency_key and task.finished_time and task.finished_time >= oldest
                ):
                    task.orphaned = True
                    kept.append(task)
        gone = [task for task in self.tasks[key] if task not in kept]
        self.tasks[key] = [task for task in self.tasks[key] if task in kept]
        return {task.task_id for task in gone if task.reply_to and not task.finished_time}

    def claim(
        self, namespace: str, limit: int, worker: str, lease: int, now: datetime, *, timers: bool
    ) -> list[Task]:
        heads = [task for key in self.processes if key[0] == namespace and (task := self.next(key))]
        due = [
            task
            for task in heads
            if task.task_type.is_timer is timers and (not timers or task.scheduled_time <= now)
        ]
        found = sorted(due, key=_by_time)[: 0 if self.policies[namespace].paused else limit]
        for task in found:
            task.run(worker, lease, now)
        return found

    def capture(self, task: Task, worker: str, lease: int, now: datetime) -> Task | None:
        is_next = task.status is WAITING and self.next(task.key) is task
        if not is_next or task.scheduled_time > now or self.policies[task.key[0]].paused:
            return None
        task.run(worker, lease, now)
        return task

    def hand_back(self, key: Key, task_id: int, lease: int) -> None:
        task = self.running(key)
        if task is not None and (task.task_id, task.lease) == (task_id, lease):
            self._release(task)

    def _release(self, task: Task) -> None:
        task.status, task.running_time, task.worker, task.lease = WAITING, None, None, None

    def collect(
        self, lease_age: timedelta, grace: timedelta, limit: int, now: datetime
    ) -> dict[int, tuple[str, set[int]]]:
        """What was done with each zombie, and who must be told."""
        found: dict[int, tuple[str, set[int]]] = {}
        for key in sorted(self.processes):
            task, policy = self.running(key), self.policies[key[0]]
            if task is None or task.running_time is None or len(found) == limit:
                continue
            seen = max(self.seen.get(task.worker or "", task.running_time), task.running_time)
            overdue = task.running_time + policy.step_timeout + grace < now
            if seen >= now - lease_age and not overdue:
                continue
            left = policy.max_attempts is None or task.attempts + 1 < policy.max_attempts
            if policy.on_zombie == "retry" and left:
                self._release(task)
                task.attempts += 1
                found[task.task_id] = ("retry", set())
            else:
                found[task.task_id] = ("error", self._bury(key, task, now))
        return found

    def _bury(self, key: Key, task: Task, now: datetime) -> set[int]:
        process = self.processes[key]
        told = self._cancel(self.waiting(key), now, "zombie detected")
        task.end(TaskStatus.ERROR, now, "zombie detected")
        task.lease = None
        if process.status is not ProcessStatus.ERROR:
            process.become(ProcessStatus.ERROR, now, "zombie detected", task)
        return told

    def drop_leftovers(self, lease_age: timedelta, answer_age: timedelta, now: datetime) -> None:
        busy = {task.worker for task in self.all_tasks() if task.status is RUNNING}
        self.seen = {w: at for w, at in self.seen.items() if at >= now - 10 * lease_age or w in busy}
        for key, tasks in self.tasks.items():
            oldest = now - answer_age
            self.tasks[key] = [
                task
                for task in tasks
                if not task.orphaned or task.finished_time is None or task.finished_time >= oldest
            ]

    def remove(self, key: Key) -> tuple[bool, set[int]]:
        return (True, self._delete(key)) if key in self.processes else (False, set())

    def put(self, item: Import, now: datetime) -> bool:
        key = (item.namespace, item.process_id)
        if key in self.processes:
            return False
        process = self.processes[key] = Process(now, ProcessStatus(item.status), now, detail=item.detail)
        process.aux_state, process.metadata = item.aux_state, item.metadata or {}
        record = self._add(key, TaskType.INIT, now)
        record.idempotency_key, record.running_time = item.idempotency_key, now
        record.end(FINISHED, now)
        process.events = [record] * len(item.events)
        if item.timer is not None:
            self._add(key, TIMER[item.timer.remove], due_of(item.timer, now))
        return True

    # The tables.

    def bind(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Take over the ids of new tasks: in a process, ids are drawn in the order of acceptance."""
        for key, tasks in self.tasks.items():
            ids = sorted(row[2] for row in rows if row[:2] == key)
            assert len(ids) == len(tasks), f"{key}: tasks {ids}, expected {tasks}"
            for task, task_id in zip(tasks, ids, strict=True):
                assert task.task_id in (0, task_id), f"{key}: task {task.task_id} became {task_id}"
                task.task_id = task_id

    def rows(self) -> Rows:
        """What the tables must say."""
        live = self.all_tasks()
        return {
            "processes": [
                (*key, p.status, p.previous, p.changed_at, p.created_at, p.detail, p.aux_state, p.metadata,
                 p.corrupted_by and p.corrupted_by.task_id, len(p.events))
                for key, p in self.processes.items()
            ],
            "tasks": [
                (*t.key, t.task_id, t.task_type, t.status, t.scheduled_time, t.running_time,
                 t.finished_time, t.idempotency_key, t.response, t.error, t.interval, t.attempts,
                 t.worker, t.lease, t.orphaned)
                for t in live
            ],
            "schedule": [
                (*t.key, t.task_id, t.task_type, self._schedule_status(t), t.scheduled_time,
                 self.next(t.key) is t)
                for t in live if t.status is WAITING
            ],
            "running": [
                (*t.key, t.task_id, t.task_type, t.worker, t.lease, t.running_time)
                for t in live if t.status is RUNNING
            ],
            "events": [
                (*key, place, task.task_id)
                for key, p in self.processes.items() for place, task in enumerate(p.events, start=1)
            ],
        }  # fmt: skip

    def _schedule_status(self, task: Task) -> str:
        free = self.next(task.key) is task
        return "blocked" if task.task_type.is_timer and not free else "waiting"


def due_of(timer: SetTimer, now: datetime) -> datetime:
    return timer.at if timer.at is not None else now + (timer.after or timedelta())


def _by_time(task: Task) -> tuple[datetime, int]:
    return task.scheduled_time, task.task_id
