"""What Storage promises, in dicts: the oracle of test_storage_model.

Rule: one life of a process is its tasks in the order of their acceptance, each with a status. What runs,
what waits, what is blocked and what may be claimed is derived from that; nothing is kept twice, and nothing
is locked. A name stands for the life that lives; lives that ended by a step are kept, with their answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple

from progressor.config import Rate, Retention
from progressor.model import Decision, Disposition, ProcessStatus, TaskStatus, TaskType
from progressor.storage.values import Claimed, Import, Reason, Request, Step, TaskOutcome
from progressor.timers import SetTimer
from progressor.timers.recurrence import as_begun

Key = tuple[str, str]
Rows = dict[str, list[tuple[Any, ...]]]
WAITING, RUNNING, FINISHED = TaskStatus.WAITING, TaskStatus.RUNNING, TaskStatus.FINISHED
DAY, MINUTES = timedelta(days=1), timedelta(minutes=10)
# The intervals of the default policy.
SECOND, LONGEST = timedelta(seconds=1), timedelta(minutes=15)
MINUTE = timedelta(minutes=1)
MICROSECOND = timedelta(microseconds=1)
# That of a namespace, and of each of its groups, in claims by a rate.
RATE = Rate(3, per=20 * SECOND, burst=2)
# For so long readers find what the feed tells.
FEED_KEPT = timedelta(days=7)
TIMER = {False: TaskType.TIMEOUT, True: TaskType.REMOVE}


class Fed(NamedTuple):
    """What the feed tells: a letter, the number of an event, and since when."""

    letter: str
    n: int
    at: datetime


@dataclass(eq=False)
class Task:
    """A task; `task_id` is taken over from the tables when they first show it."""

    process: Process
    task_type: TaskType
    scheduled_time: datetime
    request: Request | None = None
    idempotency_key: str | None = None
    name: str | None = None
    status: TaskStatus = WAITING
    task_id: int = 0
    running_time: datetime | None = None
    finished_time: datetime | None = None
    response: bytes | None = None
    error: str | None = None
    attempts: int = 0
    interval: timedelta | None = None
    losses: int = 0
    worker: int | None = None
    lease: int | None = None
    occurrence: bytes | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.process.number, self.task_id

    @property
    def order_time(self) -> datetime:
        """Its own: each step of its priority is worth a minute."""
        return self.scheduled_time - MINUTE * (self.request.priority if self.request else 0)

    @property
    def reply_to(self) -> int | None:
        return self.request.reply_to if self.request else None

    def run(self, worker: int, lease: int, now: datetime) -> None:
        self.status, self.worker, self.lease, self.running_time = RUNNING, worker, lease, now

    def end(self, status: TaskStatus, now: datetime, error: str | None = None) -> None:
        self.status, self.finished_time, self.error = status, now, error


@dataclass(eq=False)
class Process:
    """One life of a process, with its tasks; its events are the tasks that made them.

    `number` is taken over from the tables. It has a `kept_until` once it ended, and no name if by hand.
    """

    key: Key
    created_at: datetime
    number: int = 0
    tasks: list[Task] = field(default_factory=list)
    kept_until: datetime | None = None
    has_name: bool = True
    status: ProcessStatus = ProcessStatus.INIT
    changed_at: datetime | None = None
    previous: ProcessStatus | None = None
    detail: str | None = None
    aux_state: bytes | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    corrupted_by: Task | None = None
    events: list[Task] = field(default_factory=list)
    rests_until: datetime | None = None
    held: tuple[Task, datetime] | None = None
    waits_for_room: bool = False
    group: str | None = None
    # Those that its retention deleted; and how many events.
    swept: list[Task] = field(default_factory=list)
    lost_events: int = 0
    # What the feed tells of it; and until when its events stay for readers, once it is gone.
    fed: list[Fed] = field(default_factory=list)
    leftover_until: datetime | None = None
    has_events: bool = True

    # What is derived.

    @property
    def running(self) -> Task | None:
        return next((task for task in self.tasks if task.status is RUNNING), None)

    @property
    def waiting(self) -> list[Task]:
        """Requests in their order, then the timers, earliest first."""
        found = [task for task in self.tasks if task.status is WAITING]
        timers = (task for task in found if task.task_type.is_timer)
        requests = [task for task in found if not task.task_type.is_timer]
        return [*requests, *sorted(timers, key=lambda task: task.scheduled_time)]

    @property
    def next(self) -> Task | None:
        waiting = self.waiting
        if not waiting or self.running is not None:
            return None
        is_held = self.status is ProcessStatus.ERROR and waiting[0].task_type.is_timer
        return None if is_held else waiting[0]

    @property
    def head(self) -> Task | None:
        """The next task, if it may be claimed."""
        return None if self.held_until else self.next

    @property
    def held_until(self) -> datetime | None:
        if self.held is None or self.held[0] is not self.next:
            return None
        return self.order_time(self.held[0]) if self.waits_for_room else self.held[1]

    @property
    def waits_in(self) -> str | None:
        return self.group if self.held_until and self.waits_for_room else None

    def settle(self, now: datetime, *, rests: bool = False) -> None:
        """Have its next task wait for the end of the pause, or a request for room in its group."""
        following, self.held, self.waits_for_room = self.next, None, False
        if following is None:
            return
        timer = following.task_type.is_timer
        if rests and self.rests_until and (following.scheduled_time if timer else now) < self.rests_until:
            self.held = following, self.rests_until
        elif self.group and not timer:
            self.held, self.waits_for_room = (following, following.scheduled_time), True

    @property
    def requests(self) -> list[Task]:
        return [task for task in self.waiting if not task.task_type.is_timer]

    def order_time(self, task: Task) -> datetime:
        """Where it stands among those that may be claimed: the next one as the most urgent behind it."""
        return min(each.order_time for each in (self.requests if self.next is task else ()) or (task,))

    def timer(self, name: str) -> Task | None:
        timers = (task for task in self.waiting if task.task_type.is_timer)
        return next((task for task in timers if task.name == (name or None)), None)

    def old_tasks(self, kept: Retention, now: datetime) -> list[Task]:
        """Those that a retention may delete: they ended long enough ago, and nothing needs them."""
        if kept.tasks is None:
            return []
        keys = kept.keys or kept.tasks
        return [
            task
            for task in self.tasks
            if task.finished_time is not None
            and task.finished_time < now - (keys if task.idempotency_key else kept.tasks)
            and task is not self.corrupted_by
        ]

    def old_events(self, kept: Retention, now: datetime) -> int:
        """How many of its first events, of all that it had, a retention may delete."""
        if isinstance(kept.events, timedelta):
            # An event is as old as the end of its task.
            young = [(task.finished_time or now) >= now - kept.events for task in self.events]
            return young.index(True) if True in young else len(young)
        return 0 if kept.events is None else max(0, len(self.events) - kept.events)

    def become(self, status: ProcessStatus, now: datetime, detail: str | None, by: Task | None) -> None:
        if status is not self.status:
            self.previous, self.status, self.changed_at = self.status, status, now
        self.detail, self.corrupted_by = detail, by


@dataclass
class Policy:
    """What a namespace's row says."""

    paused: bool = False
    on_zombie: str = "policy"
    zombie_attempts: int = 2
    max_attempts: int | None = 2
    pause: timedelta | None = None
    step_timeout: timedelta = timedelta(seconds=60)


CHANGES = (Disposition.REPLACE, Disposition.CANCEL)


class Ended(NamedTuple):
    """What save_result answers: the continuation, when the timer is due, who must be told."""

    continuation: Task | None
    due: datetime | None
    told: set[int]


class Bucket:
    """A rate as a bucket of tokens: one comes each interval, each begin takes one."""

    def __init__(self) -> None:
        self._tokens = Fraction(RATE.burst)
        self._at: datetime | None = None

    def admits(self, now: datetime) -> int:
        """How many tasks may begin now."""
        if self._at is not None:
            self._tokens += Fraction((now - self._at) // MICROSECOND, RATE.interval // MICROSECOND)
        self._tokens, self._at = min(self._tokens, Fraction(RATE.burst)), now
        return floor(self._tokens)

    def take(self, begins: int) -> None:
        self._tokens -= begins


class Oracle:
    """All of Storage: one method per verb, one item at a time."""

    def __init__(self, namespaces: Iterable[str]) -> None:
        self.processes: dict[Key, Process] = {}
        self.removed: list[Process] = []
        self.policies = {name: Policy() for name in namespaces}
        self.feeding: frozenset[str] = frozenset()
        self.fed: list[Process] = []
        """Those of which the feed tells, or told."""
        self.leftovers: list[Process] = []
        self.seen: dict[int, datetime] = {}
        self.buckets: dict[tuple[str, str | None], Bucket] = {}

    def lives(self) -> list[Process]:
        """Those that live, and those whose answers are kept."""
        return [*self.processes.values(), *self.removed]

    def all_tasks(self) -> list[Task]:
        return [task for process in self.lives() for task in process.tasks]

    def alive(self, number: int) -> Process | None:
        """Who names a process by its number means this life of it."""
        return next((process for process in self.processes.values() if process.number == number), None)

    # The verbs.

    def prepare(self, asked: Request, now: datetime) -> Task | tuple[Reason, str | None]:
        """The task of this request, new or not; or why there is none."""
        key = (asked.namespace, asked.process_id)
        known = self._known(asked)
        if known:
            assert len(known) == 1, f"{key}: {asked.idempotency_key} has {known}"
            same = known[0].request is not None and known[0].request.request_hash == asked.request_hash
            return known[0] if same else (Reason.CONFLICT, None)
        process = self.processes.get(key)
        rejection = self._obstacle(asked, process)
        if rejection is not None:
            return rejection
        if process is None:
            process = self.processes[key] = Process(key, now, changed_at=now)
        task = self._add(process, asked.task_type, now, asked)
        task.lease = asked.lease
        if process.next is task:
            process.settle(now, rests=asked.task_type is not TaskType.REPAIR)
        if asked.worker_id is not None and process.head is task and not self.policies[key[0]].paused:
            task.run(asked.worker_id, asked.lease, now)
        return task

    def deliver(self, asked: Request, now: datetime) -> Task | tuple[Reason, str | None] | None:
        """As `prepare`; a notice to a broken process stands in its trace. None: it waits for a repair."""
        found = self.prepare(asked, now)
        if isinstance(found, Task) or found[0] is not Reason.BROKEN:
            return found
        process = self.processes[asked.namespace, asked.process_id]
        if process.running or process.requests:
            return None
        task = self._add(process, asked.task_type, now, asked)
        task.lease = asked.lease
        task.end(TaskStatus.CANCELLED, now, process.detail)
        return task

    def _known(self, asked: Request) -> list[Task]:
        """The task that has its key, in any life of its process."""
        return [
            task
            for process in self.lives()
            for task in process.tasks
            if process.key == (asked.namespace, asked.process_id)
            and task.idempotency_key == asked.idempotency_key
        ]

    def begins(self, asked: Request) -> bool:
        """Whether this request, behind its lock, may run at once; nothing of it is written."""
        process = self.processes.get((asked.namespace, asked.process_id))
        if self._known(asked) or self._obstacle(asked, process) or self.policies[asked.namespace].paused:
            return False
        limited = process and (process.rests_until or process.group)
        return process is None or not (process.running or process.requests or limited)

    def fuse(self, asked: Request, held: Claimed, decision: Decision | None, now: datetime) -> Ended | None:
        """A request that was accepted, run and saved at once; None: it goes on, and is held."""
        task = self.prepare(asked, now)
        assert isinstance(task, Task)
        assert task.status is RUNNING
        assert task.process.number in (0, held.process.process_no)
        task.task_id, task.process.number = held.task.task_id, held.process.process_no
        if decision is None or not is_plain(decision, now):
            return None
        # It is answered with its commit: nobody is to be told.
        task.request = asked._replace(reply_to=None)
        # What is due is left to the claims.
        return self.save(Step(held.task, held.process, decision, keeps_slot=False), now)

    def _obstacle(self, asked: Request, process: Process | None) -> tuple[Reason, str | None] | None:
        if asked.task_type is TaskType.INIT:
            if asked.namespace not in self.policies:
                return Reason.NO_NAMESPACE, None
            return (Reason.EXISTS, None) if process else None
        if process is None:
            return Reason.NOT_FOUND, None
        broken = process.status is ProcessStatus.ERROR
        if asked.task_type is TaskType.REPAIR:
            if not broken:
                return Reason.NOT_BROKEN, None
            return (Reason.IN_REPAIR, None) if process.running or process.requests else None
        return (Reason.BROKEN, process.detail) if broken else None

    def _add(
        self,
        process: Process,
        kind: TaskType,
        due: datetime,
        asked: Request | None = None,
        name: str | None = None,
    ) -> Task:
        task = Task(
            process, kind, due, asked, asked and asked.idempotency_key, asked.name if asked else name
        )
        process.tasks.append(task)
        return task

    def is_lite(self, steps: Sequence[Step]) -> bool:
        """Whether these try the shorter way: all end well, and are of the kinds that try it."""
        return all(
            step.task.task_type in (TaskType.INIT, TaskType.TIMEOUT)
            and step.decision.disposition in (Disposition.RESUME, Disposition.REPLACE, Disposition.CANCEL)
            and step.decision.reply.error is None
            and not step.decision.changes
            and not step.decision.messages
            and len(step.process.timers) <= 1
            for step in steps
        )

    def is_left(self, step: Step) -> bool:
        """Whether the shorter way leaves this step alone: its lease is lost, or something waits."""
        process = self._held_by(step)
        return process is None or bool(process.waiting)

    def _held_by(self, step: Step) -> Process | None:
        """The process on which this step runs, if its worker still holds it."""
        process, task = self.alive(step.task.process_no), step.task
        running = process.running if process else None
        if running is None or (running.task_id, running.worker, running.lease) != (
            task.task_id,
            task.worker_id,
            task.lease,
        ):
            return None
        return process

    def simple_repair(self, asked: Request, now: datetime) -> Task | tuple[Reason, str | None]:
        old = set(self.all_tasks())
        task = self.prepare(asked, now)
        if isinstance(task, Task) and task not in old:
            task.running_time = now
            task.end(FINISHED, now)
            self._repaired(task.process, now)
            self._feed(task.process, "p", now)
        return task

    def save(self, step: Step, now: datetime) -> Ended | None:
        """None: the lease was lost."""
        process, decision = self._held_by(step), step.decision
        task = process.running if process else None
        if process is None or task is None:
            return None
        told = set[int]()
        answer = TaskOutcome.of(decision.reply)
        task.response = answer.response
        if decision.disposition is Disposition.RETRY:
            task.status, task.error = WAITING, answer.error
            task.attempts, task.interval = task.attempts + 1, decision.retry_interval
            task.scheduled_time = now + (decision.retry_interval or timedelta())
        else:
            task.end(TaskStatus.ERROR if answer.error else FINISHED, now, answer.error)
        self._feed_step(process, task, decision, now)
        if decision.disposition is Disposition.REMOVE:
            process.events += [task] * len(decision.events)
            return Ended(None, None, self._keep(process, task, now))
        if decision.disposition is Disposition.BREAK:
            told = self._cancel(process.requests, now, answer.error)
        self._rest(process, step, now)
        if decision.status is not None:
            if decision.status is ProcessStatus.INIT:
                self._restart(process, now)
            broken = decision.status is ProcessStatus.ERROR
            process.become(decision.status, now, answer.error if broken else None, task if broken else None)
            process.aux_state = process.aux_state if decision.aux_state is None else decision.aux_state
            process.metadata = process.metadata if decision.metadata is None else decision.metadata
        process.events += [task] * len(decision.events)
        self._set_timers(process, task, step, now)
        return self._go_on(process, task, step, now)._replace(told=told)

    def _feed_step(self, process: Process, task: Task, decision: Decision, now: datetime) -> None:
        count = len(decision.events)
        if decision.disposition is Disposition.REMOVE:
            # What was refused at its start was never there.
            if task.task_type is not TaskType.INIT or decision.reply.rejection is None:
                self._feed(process, "r", now, count)
                self._leave_events(process, now)
        elif decision.status is ProcessStatus.ERROR:
            self._feed(process, "b", now, count)
        elif decision.status is not None and task.task_type is TaskType.INIT:
            self._feed(process, "c", now, count)
        elif decision.status is not None and task.task_type is TaskType.REPAIR:
            self._feed(process, "p", now, count)
        elif count or decision.aux_state is not None or decision.metadata is not None:
            self._feed(process, "s", now, count)

    def _leave_events(self, process: Process, now: datetime) -> None:
        if process.key[0] in self.feeding:
            process.leftover_until = now + FEED_KEPT
            self.leftovers.append(process)

    def _feed(self, process: Process, letter: str, now: datetime, count: int = 0) -> None:
        """Have the feed tell what happened, before or behind the next events."""
        if process.key[0] not in self.feeding:
            return
        known, what = len(process.events), Fed(letter, 0, now)
        own = [Fed("e", known + place, now) for place in range(1, count + 1)]
        process.fed += [what, *own] if letter in "cp" else [*own, what]
        if process not in self.fed:
            self.fed.append(process)

    def _rest(self, process: Process, step: Step, now: datetime) -> None:
        decision = step.decision
        if step.pause is not None:
            if decision.status is not None or process.status is ProcessStatus.RUNNING:
                process.rests_until = now + step.pause
            return
        changed = decision.events or decision.aux_state is not None or decision.metadata is not None
        if decision.status is not None and (changed or decision.status is not process.status):
            process.rests_until = None

    def _repaired(self, process: Process, now: datetime) -> None:
        process.rests_until = None
        if process.previous is ProcessStatus.INIT:
            self._restart(process, now)
            process.become(ProcessStatus.INIT, now, None, None)
        else:
            process.become(ProcessStatus.RUNNING, now, None, None)
        process.settle(now)

    def _restart(self, process: Process, now: datetime) -> None:
        """The init that broke it waits again, under its own key, ahead of all others."""
        task = process.corrupted_by
        assert task is process.tasks[0]
        task.status, task.scheduled_time = WAITING, now
        task.running_time = task.finished_time = task.worker = None
        task.attempts, task.losses = task.attempts + 1, 0

    def _set_timers(self, process: Process, task: Task, step: Step, now: datetime) -> None:
        if step.decision.disposition is Disposition.BREAK and task.task_type.is_timer:
            self._hold(process, task)
        changes = [step.decision.timer] if step.decision.disposition in CHANGES else step.decision.changes
        for each in changes:
            assert each is not None
            is_new = isinstance(each, SetTimer)
            if old := process.timer(each.name):
                old.end(TaskStatus.CANCELLED, now, "timer replaced" if is_new else "timer unset")
            if isinstance(each, SetTimer):
                self._add_timer(process, each, now)

    def _add_timer(self, process: Process, timer: SetTimer, now: datetime) -> None:
        task = self._add(process, TIMER[timer.remove], due_of(timer, now), name=timer.name or None)
        task.occurrence = timer.occurrence

    def _hold(self, process: Process, timer: Task) -> None:
        """Hold the same timer in place of one that broke the process."""
        held = self._add(process, timer.task_type, timer.scheduled_time, name=timer.name)
        held.occurrence = timer.occurrence

    def _go_on(self, process: Process, task: Task, step: Step, now: datetime) -> Ended:
        following, process.held = process.next, None
        if following is None:
            # A process that stays broken does not rest.
            if step.pause is None or step.decision.disposition is Disposition.HOLD:
                return Ended(None, None, set())
            return Ended(None, now + step.pause, set())
        timer = following.task_type.is_timer
        is_due = not timer or following.scheduled_time <= now
        paused = self.policies[process.key[0]].paused
        if step.keeps_slot and is_due and following is not task and not paused:
            following.run(step.task.worker_id, step.task.lease + 1, now)
            return Ended(following, None, set())
        process.settle(now, rests=step.pause is not None)
        if step.pause is not None:
            return Ended(None, now + step.pause, set())
        return Ended(None, following.scheduled_time if timer else None, set())

    def _cancel(self, tasks: Iterable[Task], now: datetime, reason: str | None) -> set[int]:
        found = list(tasks)
        for task in found:
            task.end(TaskStatus.CANCELLED, now, reason)
        return {task.task_id for task in found if task.reply_to}

    def _keep(self, process: Process, own: Task, now: datetime) -> set[int]:
        """It ended by this step: what is kept are its own answer, and those of the last day to a key."""
        answers = [
            task
            for task in process.tasks
            if task.idempotency_key and task.finished_time and task.finished_time >= now - DAY
        ]
        process.kept_until = now + (DAY if answers else MINUTES)
        told = self._forget(process)
        process.tasks = [task for task in process.tasks if task is own or task in answers]
        self.removed.append(process)
        return told

    def _forget(self, process: Process) -> set[int]:
        del self.processes[process.key]
        return {task.task_id for task in process.tasks if task.reply_to and not task.finished_time}

    def claim(
        self,
        namespace: str,
        limit: int,
        worker: int,
        lease: int,
        now: datetime,
        *,
        timers: bool,
        locked: Iterable[Key] = (),
    ) -> list[Task]:
        """What others have locked is left to them."""
        heads = [
            process.head
            for process in self.processes.values()
            if process.key[0] == namespace and process.key not in locked and not process.group
        ]
        due = [
            task
            for task in heads
            if task and task.task_type.is_timer is timers and (not timers or task.scheduled_time <= now)
        ]
        found = sorted(due, key=_by_time)[: 0 if self.policies[namespace].paused else limit]
        for task in found:
            task.run(worker, lease, now)
        # What was claimed together begins together, and is listed as it was accepted.
        return sorted(found, key=lambda task: (task.scheduled_time, task.task_id))

    def capture(self, key: tuple[int, int], worker: int, lease: int, now: datetime) -> Task | None:
        process = self.alive(key[0])
        task = process.head if process else None
        if process is None or task is None or task.key != key or process.group:
            return None
        is_early = task.task_type.is_timer and task.scheduled_time > now
        if is_early or self.policies[process.key[0]].paused:
            return None
        task.run(worker, lease, now)
        return task

    def ripen(self, namespace: str, limit: int, now: datetime) -> int:
        """Let be claimed what was held until a time that has come."""
        found = [
            process
            for process in self.processes.values()
            if process.key[0] == namespace
            and process.held_until
            and not process.waits_for_room
            and process.held_until <= now
        ]
        found = sorted(
            found, key=lambda process: (process.held_until, process.held and process.held[0].task_id)
        )
        for process in found[:limit]:
            process.waits_for_room = bool(process.group)
            process.held = process.held if process.group else None
        return len(found[:limit])

    def queue_timers(self, namespace: str, limit: int, now: datetime) -> int:
        """Have due timers of groups, among the oldest that are due, wait for room."""
        heads = [each.head for each in self.processes.values() if each.key[0] == namespace]
        due = [each for each in heads if each and each.task_type.is_timer and each.scheduled_time <= now]
        found = [each for each in sorted(due, key=_by_time)[:limit] if each.process.group]
        for task in found:
            task.process.held, task.process.waits_for_room = (task, task.scheduled_time), True
        return len(found)

    def enter(self, key: tuple[int, int], lease: int, group: str, now: datetime) -> bool:
        """Its init waits for room in the group, if its worker still holds it."""
        task = self._held(key, lease)
        if task is None or task.task_type is not TaskType.INIT:
            return False
        process = task.process
        process.group = group
        task.status, task.running_time, task.worker, task.lease = WAITING, None, None, None
        process.settle(now)
        return True

    def room(self, namespace: str, group: str, most: int) -> int:
        """How many more tasks of the group may run."""
        return most - sum(
            1
            for process in self.processes.values()
            if process.key[0] == namespace and process.group == group and process.running
        )

    def bucket(self, namespace: str, group: str | None = None) -> Bucket:
        """That of a namespace with a rate, or of one of its groups."""
        return self.buckets.setdefault((namespace, group), Bucket())

    def claim_in(
        self,
        namespace: str,
        groups: Sequence[str],
        limit: int,
        most: int,
        worker: int,
        lease: int,
        now: datetime,
        *,
        rated: bool,
    ) -> list[Task]:
        """The tasks that wait longest in each of these groups, as far as room and rate admit."""
        taken: list[Task] = []
        for group in [] if self.policies[namespace].paused else groups:
            waiting = [
                (process.held[0], process.held_until)
                for process in self.processes.values()
                if process.key[0] == namespace and process.waits_in == group and process.held
            ]
            waiting.sort(key=lambda held: (held[1], held[0].task_id))
            room = min(self.room(namespace, group, most), limit - len(taken))
            if rated:
                room = min(room, self.bucket(namespace, group).admits(now))
                self.bucket(namespace, group).take(len(waiting[:room]))
            taken += [task for task, _ in waiting[:room]]
        for task in taken:
            task.run(worker, lease, now)
        return sorted(taken, key=lambda task: (task.scheduled_time, task.task_id))

    def _held(self, key: tuple[int, int], lease: int) -> Task | None:
        """The task, if it runs under this lease."""
        process = self.alive(key[0])
        task = process.running if process else None
        return task if task is not None and (task.key, task.lease) == (key, lease) else None

    def hand_back(self, key: tuple[int, int], lease: int) -> None:
        if task := self._held(key, lease):
            self._release(task)

    def hand_back_unsaved(
        self, key: tuple[int, int], lease: int, pause: timedelta, reason: str, now: datetime
    ) -> None:
        """It has begun, and waits for the end of a pause; for a request that is a try."""
        task = self._held(key, lease)
        if task is None:
            return
        task.interval, task.error = pause, reason
        if task.task_type.is_timer:
            task.scheduled_time, task.occurrence = now + pause, as_begun(task.occurrence)
            self._release(task)
        else:
            task.attempts += 1
            self._release(task)
            task.process.held, task.process.waits_for_room = (task, now + pause), False

    def _release(self, task: Task) -> None:
        task.status, task.running_time, task.worker, task.lease = WAITING, None, None, None
        task.process.settle(task.scheduled_time)

    def collect(
        self, lease_age: timedelta, grace: timedelta, limit: int, now: datetime
    ) -> dict[int, tuple[str, Disposition, set[int]]]:
        """Whose each zombie was, what was done with it, and who must be told."""
        found: dict[int, tuple[str, Disposition, set[int]]] = {}
        for process in sorted(self.processes.values(), key=lambda process: process.number):
            task, policy = process.running, self.policies[process.key[0]]
            if task is None or task.running_time is None or task.worker is None or len(found) == limit:
                continue
            seen = max(self.seen.get(task.worker, task.running_time), task.running_time)
            overdue = task.worker in self.seen and task.running_time + policy.step_timeout + grace < now
            if seen >= now - lease_age and not overdue:
                continue
            reason = self._reason(task.worker, policy, lease_age, now)
            if self._goes_back(task, policy):
                self._release(task)
                task.attempts += 1
                task.losses += 1
                task.error = reason
                if policy.on_zombie == "policy":
                    task.interval = min(2 * task.interval, LONGEST) if task.interval else SECOND
                    task.scheduled_time = now + task.interval
                found[task.task_id] = (process.key[1], Disposition.RETRY, set())
            else:
                broken = process.status is ProcessStatus.ERROR
                end = Disposition.HOLD if broken else Disposition.BREAK
                found[task.task_id] = (process.key[1], end, self._bury(process, task, reason, now))
        return found

    def _goes_back(self, task: Task, policy: Policy) -> bool:
        if policy.on_zombie == "retry":
            return task.losses < policy.zombie_attempts
        left = policy.max_attempts is None or task.attempts + 1 < policy.max_attempts
        return policy.on_zombie == "policy" and task.task_type.is_timer and left

    def _reason(self, worker: int, policy: Policy, lease_age: timedelta, now: datetime) -> str:
        seen, named = self.seen.get(worker), f"worker {worker:016x}"
        if seen is None:
            return f"zombie detected: {named} is gone, for longer than a lease of {lease_age.seconds} s"
        if seen < now - lease_age:
            at = seen.isoformat(sep=" ", timespec="milliseconds")
            return f"zombie detected: {named} was last seen at {at}, its lease is {lease_age.seconds} s"
        limit = policy.step_timeout.seconds
        return f"zombie detected: on {named} it outlived its step_timeout of {limit} s"

    def _bury(self, process: Process, task: Task, reason: str, now: datetime) -> set[int]:
        told = self._cancel(process.requests, now, reason)
        task.end(TaskStatus.ERROR, now, reason)
        task.lease = None
        if process.status is not ProcessStatus.ERROR:
            process.become(ProcessStatus.ERROR, now, reason, task)
            self._feed(process, "b", now)
        if task.task_type.is_timer:
            self._hold(process, task)
        return told

    def drop_workers(self, lease_age: timedelta, now: datetime) -> None:
        busy = {task.worker for task in self.all_tasks() if task.status is RUNNING}
        self.seen = {w: at for w, at in self.seen.items() if at >= now - 10 * lease_age or w in busy}

    def drop_removed(self, limit: int, now: datetime, left: set[int]) -> bool:
        """`left` are those that the tables still have: of what ends at one moment, any may go first.

        True if there may be more.
        """
        due = sorted(
            (process for process in self.removed if process.kept_until and process.kept_until < now),
            key=lambda process: (process.kept_until, process.number in left),
        )
        gone = due[:limit]
        self.removed = [process for process in self.removed if process not in gone]
        return len(gone) == limit

    def drop_fed(self, limit: int, now: datetime, left: set[int]) -> None:
        """Events of processes that are gone; `left` as in drop_removed."""
        due = sorted(
            (each for each in self.leftovers if each.leftover_until and each.leftover_until < now),
            key=lambda process: (process.leftover_until, process.number in left),
        )
        for process in due[:limit]:
            process.has_events = False
            self.leftovers.remove(process)

    def remove(self, key: Key, now: datetime) -> tuple[bool, set[int]]:
        """By hand: its number is kept, without name and tasks; what is kept of earlier lives stays."""
        process = self.processes.get(key)
        if process is None:
            return False, set()
        told = self._forget(process)
        process.kept_until = now + DAY
        process.tasks, process.has_name, process.has_events = [], False, False
        self._feed(process, "r", now)
        self.removed.append(process)
        return True, told

    def put(self, item: Import, now: datetime) -> bool | None:
        key = (item.namespace, item.process_id)
        if item.namespace not in self.policies:
            return None
        if key in self.processes:
            return False
        process = Process(key, now, status=ProcessStatus(item.status), changed_at=now, detail=item.detail)
        self.processes[key] = process
        process.aux_state, process.metadata = item.aux_state, item.metadata or {}
        record = self._add(process, TaskType.INIT, now, None)
        record.name, record.idempotency_key, record.running_time = "put", item.idempotency_key, now
        record.end(FINISHED, now)
        process.events = [record] * len(item.events)
        # What it came with is not told.
        self._feed(process, "c", now)
        for timer in item.timers:
            self._add_timer(process, timer, now)
        return True

    def sweep(self, namespace: str, kept: Retention, began: datetime, found: Rows, *, whole: bool) -> int:
        """Take over what a walk has deleted, which must have been old when it began; return how much.

        `whole`: nothing has happened since it began, and it has ended, so that nothing old is left.
        """
        ids = {row[:2] for row in found["tasks"]}
        events = Counter(row[0] for row in found["events"])
        count = 0
        for process in self.processes.values():
            if process.key[0] != namespace:
                continue
            old, most = process.old_tasks(kept, began), process.old_events(kept, began)
            gone = [task for task in process.tasks if task.key not in ids]
            lost = len(process.events) - events[process.number]
            assert set(gone) <= set(old), f"{process.key}: {gone} were not old"
            assert process.lost_events <= lost <= max(most, process.lost_events), process.key
            if whole:
                assert set(gone) == set(old), f"{process.key}: {old} are left"
                assert lost >= most, process.key
            count += len(gone) + lost - process.lost_events
            process.tasks = [task for task in process.tasks if task not in gone]
            process.swept, process.lost_events = [*process.swept, *gone], lost
        return count

    # The tables.

    def bind(self, found: Rows) -> None:
        """Take over the numbers of new lives, and the ids of new tasks: in a process, ids are drawn in the
        order of acceptance."""
        numbers = {row[1:3]: row[0] for row in found["processes"]}
        assert numbers.keys() == self.processes.keys()
        known = {process.number for process in self.lives()}
        for key, process in self.processes.items():
            assert process.number == numbers[key] or (process.number == 0 and numbers[key] not in known), (
                f"{key}: {process.number} became {numbers[key]}"
            )
            process.number = numbers[key]
        for process in self.lives():
            ids = sorted(row[1] for row in found["tasks"] if row[0] == process.number)
            assert len(ids) == len(process.tasks), f"{process}: tasks {ids}"
            for task, task_id in zip(process.tasks, ids, strict=True):
                assert task.task_id in (0, task_id), f"{process.key}: task {task.task_id} became {task_id}"
                task.task_id = task_id

    def rows(self) -> Rows:
        """What the tables must say."""
        live = self.all_tasks()
        return {
            "processes": [
                (p.number, *p.key, p.status, p.previous, p.changed_at, p.created_at, p.detail, p.aux_state,
                 p.metadata, p.corrupted_by and p.corrupted_by.task_id, len(p.events))
                for p in self.processes.values()
            ],
            "removed": [
                (p.number, *(p.key if p.has_name else (None, None)), p.kept_until) for p in self.removed
            ],
            "tasks": [
                (*t.key, t.task_type, t.status, t.scheduled_time, t.running_time, t.finished_time, t.name,
                 t.idempotency_key, t.reply_to, t.response, t.error, t.interval, t.attempts, t.worker,
                 t.lease, t.losses or None, t.occurrence)
                for t in live
            ],
            "schedule": [
                (*t.key, t.process.key[0], t.task_type, t.scheduled_time, t.process.head is t,
                 t.name or "" if t.task_type.is_timer else "", t.process.order_time(t),
                 t.process.held_until if t.process.next is t else None,
                 t.process.waits_in if t.process.next is t else None)
                for t in live if t.status is WAITING
            ],
            "running": [
                (*t.key, t.task_type, t.worker, t.lease, t.running_time, t.process.group)
                for t in live if t.status is RUNNING
            ],
            "events": [
                (p.number, place, task.task_id)
                for p in self.processes.values() for place, task in enumerate(p.events, start=1)
                if place > p.lost_events
            ],
            "leftovers": [(p.number, p.leftover_until) for p in self.leftovers],
            "swept": [
                (p.number, p.lost_events + 1 if p.lost_events else None,
                 max((task.task_id for task in p.swept), default=None))
                for p in self.processes.values()
            ],
        }  # fmt: skip


def due_of(timer: SetTimer, now: datetime) -> datetime:
    return timer.at if timer.at is not None else now + (timer.after or timedelta())


def is_plain(decision: Decision, now: datetime) -> bool:
    """It ends its own task alone, and nothing goes on at once after it."""
    if decision.disposition not in (Disposition.RESUME, Disposition.REPLACE, Disposition.CANCEL):
        return False
    return (
        decision.reply.error is None
        and not decision.changes
        and (not isinstance(decision.timer, SetTimer) or due_of(decision.timer, now) > now)
    )


def _by_time(task: Task) -> tuple[datetime, int]:
    return task.process.order_time(task), task.task_id
