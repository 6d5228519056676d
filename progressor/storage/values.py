"""The values that operations take and return: one per item of a batch."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Literal, NamedTuple

from pydantic_core import from_json, to_json

from progressor.acts import Act
from progressor.model import (
    Decision,
    Disposition,
    Event,
    Metadata,
    Rejection,
    Reply,
    Snapshot,
    Task,
    TaskStatus,
    TaskType,
    Timer,
)
from progressor.timers import SetTimer
from progressor.trace_context import carried

# Bytes of values that are read at once: claimed tasks, answers, states. One alone may be larger.
ROOM = 64 << 20

Kind = Literal["calls", "timers"]
# Calls go before timers.
KINDS: tuple[Kind, ...] = ("calls", "timers")


def rejection_json(rejection: Rejection) -> bytes:
    """Return a rejection as JSON."""
    facts = {"reason": rejection.reason, "details": dict(rejection.details), "invalid": rejection.invalid}
    # Older releases, which know no expiry, read all others.
    return to_json(facts | {"expired": True} if rejection.expired else facts)


class TaskKey(NamedTuple):
    """The identity of a task: its two numbers find it, the other fields prove that it is this one.

    A server that is promoted or restored may hand out both numbers again. The birth is random; key and hash
    are those of the task's request, and a timer has neither.
    """

    process_no: int
    task_id: int
    birth: int | None
    idempotency_key: str | None
    request_hash: bytes | None

    @property
    def fingerprint(self) -> str | None:
        """The fields beside the numbers, as 16 characters that fit in a URL; None for a timer."""
        if self.idempotency_key is None:
            return None
        parts = f"{self.birth} {self.idempotency_key} ".encode() + (self.request_hash or b"")
        return urlsafe_b64encode(sha256(parts).digest()[:12]).decode()


class TaskRef(NamedTuple):
    """A task of one life of a process, and the client process that waits for it.

    Without birth, key and hash it is only a hint where to look.
    """

    namespace: str
    process_no: int
    task_id: int
    reply_to: int | None = None
    birth: int | None = None
    idempotency_key: str | None = None
    request_hash: bytes | None = None

    @classmethod
    def of(cls, task: Task, process: Snapshot) -> TaskRef:
        """Return the reference to a task that a worker holds."""
        return cls(
            task.namespace,
            task.process_no,
            task.task_id,
            task.reply_to,
            process.birth,
            task.idempotency_key,
            task.request_hash,
        )

    @property
    def key(self) -> TaskKey:
        """The identity of the task."""
        return TaskKey(self.process_no, self.task_id, self.birth, self.idempotency_key, self.request_hash)


class Standstill(NamedTuple):
    """The reason why a request has no answer yet: a paused namespace, no live worker, or others before it.

    `requests_before`, those that wait before it on its process, are counted up to 1,001.
    """

    paused: bool
    served: bool
    requests_before: int


class Request(NamedTuple):
    """A request to persist. `lease` is drawn by the caller, so that a repetition finds itself.

    With `worker_id` None the caller has no free slot, and the task waits. `reply_to` is the client process
    that waits for the answer; `process_metadata` is that of a process to be created. `redoes` is the ended
    task that the request runs again: its args and context are copied from there. `expires` counts from its
    acceptance. With an `act` its acceptance is noted in the audit. `trace` is its trace context, if it has
    one.
    """

    namespace: str
    process_id: str
    task_type: TaskType
    idempotency_key: str
    request_hash: bytes
    lease: int
    name: str | None = None
    args: bytes | None = None
    context: bytes | None = None
    reply_to: int | None = None
    process_metadata: Metadata | None = None
    worker_id: int | None = None
    redoes: TaskKey | None = None
    expires: timedelta | None = None
    priority: int = 0
    act: Act | None = None
    trace: str | None = None


class Continue(NamedTuple):
    """The task runs: the caller's worker holds it."""

    task: Task
    process: Snapshot


@dataclass(frozen=True, slots=True)
class Postpone:
    """The task waits in the schedule."""

    task: TaskRef


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The key was used before for the same request: this is its task, with its answer once final.

    `is_own`: this very request made the task, in an earlier try whose answer was lost, or just now if it is
    done as soon as it is accepted. Of a call, notify or repair nobody knows that once a worker claimed it.
    """

    task: TaskRef
    answer: TaskOutcome
    is_own: bool = False


class Reason(StrEnum):
    """The reason why nothing was persisted."""

    EXISTS = "exists"
    NOT_FOUND = "not_found"
    BROKEN = "broken"
    NOT_BROKEN = "not_broken"
    IN_REPAIR = "in_repair"
    STRANDED = "stranded"
    """Requests that waited when it broke are still being cancelled."""
    CONFLICT = "conflict"
    NO_NAMESPACE = "no_namespace"


@dataclass(frozen=True, slots=True)
class NotPrepared:
    """The request was refused; `detail` is that of a broken process."""

    reason: Reason
    detail: str | None = None


Prepared = Continue | Postpone | Duplicate | NotPrepared


class Gone(StrEnum):
    """The reason why a task that was accepted has no row."""

    REMOVED = "removed"
    """Its process was removed."""
    LOST = "lost"
    """Its process lives: a fail-over or a restore lost the task."""
    UNKNOWN = "unknown"
    """Nothing is known of its process: that was lost too, or removed more than a day ago."""
    SWEPT = "swept"
    """It ended so long ago that the retention of its namespace deletes it."""


class TaskOutcome(NamedTuple):
    """The outcome of a task for its caller; without a status it has no row, and `gone` is the reason."""

    status: TaskStatus | None
    response: bytes | None = None
    error: str | None = None
    gone: Gone | None = None

    @classmethod
    def of(cls, reply: Reply) -> TaskOutcome:
        """Return the stored outcome of a task that ends with this reply.

        A rejection is JSON in `response`.
        """
        rejection = reply.rejection
        if rejection is not None:
            kind = (
                "expired" if rejection.expired else "invalid request" if rejection.invalid else "rejected"
            )
            return cls(TaskStatus.ERROR, rejection_json(rejection), f"{kind}: {rejection.reason}")
        if reply.error is not None:
            return cls(TaskStatus.ERROR, None, reply.error)
        return cls(TaskStatus.FINISHED, reply.response)

    def rejection(self) -> Rejection | None:
        """Return the rejection that ended the task, if one did."""
        if self.status is not TaskStatus.ERROR or self.response is None:
            return None
        return Rejection(**from_json(self.response))


_ENDS_ALONE = (Disposition.RESUME, Disposition.REPLACE, Disposition.CANCEL)


class Step(NamedTuple):
    """The end of a step, to be saved. `keeps_slot` False gives the worker's slot back: no continuation.

    `size` is that of its decision, in bytes, roughly. After it the process rests for `pause`.
    """

    task: Task
    process: Snapshot
    decision: Decision
    keeps_slot: bool = True
    size: int = 0
    pause: timedelta | None = None

    @property
    def trace(self) -> str | None:
        """The trace context that its timers and messages carry: of its span, or else of its task."""
        if self.decision.trace is not None:
            return self.decision.trace
        return None if self.task.trace is None else carried(self.task.trace)

    @property
    def ends_alone(self) -> bool:
        """Return whether it ended well, ends its task alone, sets one timer at most and sends nothing."""
        decision = self.decision
        if decision.changes or decision.messages:
            return False
        return decision.disposition in _ENDS_ALONE and decision.reply.error is None


class Finished(NamedTuple):
    """A request that was accepted, run and saved in one transaction; `due` is when its new timer is due.

    `answer` is the outcome that the caller of `task` gets.
    """

    step: Step
    now: datetime
    due: datetime | None
    task: TaskRef
    answer: TaskOutcome


class Saved(NamedTuple):
    """The step is committed.

    `continuation` is the task that the same worker goes on with, `timers` what its handler sees of the
    process's timers; `due` is when the first of them is due if the worker does not go on; `cancelled` are
    the tasks whose callers must be notified that the process broke or is gone.
    """

    now: datetime
    continuation: Task | None = None
    due: datetime | None = None
    cancelled: tuple[TaskRef, ...] = ()
    timers: tuple[Timer, ...] = ()


@dataclass(frozen=True, slots=True)
class LostLease:
    """The running row was no longer this worker's: nothing was written.

    `removed`: the process is gone too, because it was removed while the step ran.
    """

    removed: bool = False


class Claimed(NamedTuple):
    """A task moved to running, with its process."""

    task: Task
    process: Snapshot

    @property
    def size(self) -> int:
        """The size of its values, in bytes."""
        values = (self.task.args, self.task.context, self.process.aux_state)
        return sum(len(value) for value in values if value is not None)


class Beat(NamedTuple):
    """One renewal of a process's own row in `workers`, the `number`-th, committed.

    `at` is PostgreSQL's time in its transaction; `sent` and `done` are when it was sent and when its commit
    was acknowledged, by `time.monotonic`. `server` is another one after a restart or a fail-over.
    `is_borrowed` if the heartbeat had no connection of its own.
    """

    number: int
    at: datetime
    sent: float
    done: float
    server: str = ""
    is_borrowed: bool = False


class Evidence(NamedTuple):
    """The evidence that writes got through without a gap, from `since` to `at` by PostgreSQL's clock.

    At `at` the row of `worker_id` in `workers` was renewed for the `beats`-th time. `because` is the
    reason, for people, why the evidence does not begin earlier.
    """

    worker_id: int
    beats: int
    since: datetime
    at: datetime
    because: str

    def covers(self, age: timedelta) -> bool:
        """Return whether writes got through for so long."""
        return self.at - self.since >= age


# Requests: the most per transaction, which cancels no more in a second or two; the least per process.
_MOST_CANCELLED, _LEAST_CANCELLED = 10_000, 100


def most_cancelled(processes: int) -> int:
    """Return how many waiting requests of each of so many processes one transaction cancels."""
    return max(_MOST_CANCELLED // processes, _LEAST_CANCELLED)


@dataclass(frozen=True, slots=True)
class Zombie:
    """A task whose worker is gone or that ran too long: the reason for its end, and the disposition."""

    task: TaskRef
    process_id: str
    task_type: TaskType
    worker_id: int
    reason: str
    disposition: Disposition
    cancelled: tuple[TaskRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Import:
    """A process to put as it is, with its history from 1 and its timers, held if it is broken."""

    namespace: str
    process_id: str
    idempotency_key: str
    status: Literal["running", "error"] = "running"
    detail: str | None = None
    aux_state: bytes | None = None
    metadata: Metadata | None = None
    events: Sequence[Event] = ()
    timers: tuple[SetTimer, ...] = ()
    birth: int = field(default_factory=partial(secrets.randbits, 62))


class Removed(NamedTuple):
    """The result of a removal: did the process exist, and the tasks whose callers wait."""

    existed: bool
    cancelled: tuple[TaskRef, ...]
