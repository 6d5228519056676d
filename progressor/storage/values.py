"""What goes into the operations and what comes out of them: one value per item of a batch."""

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

from progressor.model import (
    Decision,
    Disposition,
    Event,
    Metadata,
    Rejection,
    Reply,
    SetTimer,
    Snapshot,
    Task,
    TaskStatus,
    TaskType,
    Timer,
)

# How many bytes of values are read at once: of tasks that are claimed, answers, states. One may be larger.
ROOM = 64 << 20


def rejection_json(rejection: Rejection) -> bytes:
    """A rejection as JSON."""
    return to_json(
        {"reason": rejection.reason, "details": dict(rejection.details), "invalid": rejection.invalid}
    )


class TaskKey(NamedTuple):
    """The identity of a task: its numbers say where it is, the others that it is this one.

    A server that is promoted or restored may hand out both numbers again. The birth is random; the key and
    the hash are those of its request, of which a timer has none.
    """

    process_no: int
    task_id: int
    birth: int | None
    idempotency_key: str | None
    request_hash: bytes | None

    @property
    def fingerprint(self) -> str | None:
        """What it has beside its numbers, in 16 characters of URLs; None for a timer."""
        if self.idempotency_key is None:
            return None
        parts = f"{self.birth} {self.idempotency_key} ".encode() + (self.request_hash or b"")
        return urlsafe_b64encode(sha256(parts).digest()[:12]).decode()


class TaskRef(NamedTuple):
    """A task of one life of a process, and the client process that waits for it.

    Without the last three it is a hint where to look.
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
        """That of a task in a worker's hands."""
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
    """Why a request has no answer yet: its namespace is paused, no live worker serves it, or others wait.

    `requests_before` it on its process are counted up to 1,001.
    """

    paused: bool
    served: bool
    requests_before: int


class Request(NamedTuple):
    """A request to persist. `lease` is drawn by the caller, so that a repetition finds itself.

    `worker_id` None: the caller has no free worker, the task waits. `reply_to` is the client process that
    waits for the answer; `process_metadata` is that of a process to be created.
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

    `is_own`: by this very request, in a try whose answer was lost; or it is done as soon as it is accepted.
    """

    task: TaskRef
    answer: TaskOutcome
    is_own: bool = False


class Reason(StrEnum):
    """Why nothing was persisted."""

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
    """The request was refused; `detail` is a broken process's."""

    reason: Reason
    detail: str | None = None


Prepared = Continue | Postpone | Duplicate | NotPrepared


class Gone(StrEnum):
    """Why a task that was accepted has no row."""

    REMOVED = "removed"
    """Its process was removed."""
    LOST = "lost"
    """Its process lives: a fail-over or a restore lost the task."""
    UNKNOWN = "unknown"
    """Nothing is known of its process: that was lost too, or removed more than a day ago."""


class TaskOutcome(NamedTuple):
    """How a task stands for its caller; status None: it has no row, `gone` says why."""

    status: TaskStatus | None
    response: bytes | None = None
    error: str | None = None
    gone: Gone | None = None

    @classmethod
    def of(cls, reply: Reply) -> TaskOutcome:
        """How a task that ends with this reply is stored. A rejection stands in `response`, as JSON."""
        rejection = reply.rejection
        if rejection is not None:
            kind = "invalid request" if rejection.invalid else "rejected"
            return cls(TaskStatus.ERROR, rejection_json(rejection), f"{kind}: {rejection.reason}")
        if reply.error is not None:
            return cls(TaskStatus.ERROR, None, reply.error)
        return cls(TaskStatus.FINISHED, reply.response)

    def rejection(self) -> Rejection | None:
        """The rejection that ended the task, if one did."""
        if self.status is not TaskStatus.ERROR or self.response is None:
            return None
        return Rejection(**from_json(self.response))


_ENDS_ALONE = (Disposition.RESUME, Disposition.REPLACE, Disposition.CANCEL)


class Step(NamedTuple):
    """The end of a step, to be saved. `keeps_slot` False gives the worker's slot back: no continuation."""

    task: Task
    process: Snapshot
    decision: Decision
    keeps_slot: bool = True

    @property
    def ends_alone(self) -> bool:
        """Whether it ended well, and ends its own task and no other."""
        return self.decision.disposition in _ENDS_ALONE and self.decision.reply.error is None

    @property
    def size(self) -> int:
        """About how many bytes its result has."""
        return self.decision.size


class Finished(NamedTuple):
    """A request that was accepted, run and saved in one transaction; `due` is when its new timer is due."""

    step: Step
    now: datetime
    due: datetime | None

    @property
    def task(self) -> TaskRef:
        """Its task."""
        return TaskRef.of(self.step.task, self.step.process)

    @property
    def answer(self) -> TaskOutcome:
        """What its caller gets."""
        return TaskOutcome.of(self.step.decision.reply)


class Saved(NamedTuple):
    """The step is committed.

    `continuation` is the task that the same worker goes on with, `timer` what its handler sees of the
    process's timer; `due` is when that is due if the worker does not go on; `cancelled` are the tasks
    whose callers must be told that the process broke or is gone.
    """

    now: datetime
    continuation: Task | None = None
    due: datetime | None = None
    cancelled: tuple[TaskRef, ...] = ()
    timer: Timer | None = None


@dataclass(frozen=True, slots=True)
class LostLease:
    """The running row was no longer this worker's: nothing was written.

    `removed`: nor is there the process any more, because somebody removed it while the step ran.
    """

    removed: bool = False


class Claimed(NamedTuple):
    """A task moved to running, with its process."""

    task: Task
    process: Snapshot

    @property
    def size(self) -> int:
        """How many bytes its values have."""
        values = (self.task.args, self.task.context, self.process.aux_state)
        return sum(len(value) for value in values if value is not None)


class Beat(NamedTuple):
    """One renewal of a process's own row in `workers`, the `number`-th, committed.

    `at` is PostgreSQL's time in its transaction; `sent` and `done` are when it was sent and when its commit
    was heard of, by `time.monotonic`.
    """

    number: int
    at: datetime
    sent: float
    done: float


class Evidence(NamedTuple):
    """That writes get through, by PostgreSQL's clock: from `since` without a gap up to `at`.

    The row in `workers` of `worker_id` was renewed then for the `beats`-th time. `because` says why it is
    no longer: for people.
    """

    worker_id: int
    beats: int
    since: datetime
    at: datetime
    because: str

    def covers(self, age: timedelta) -> bool:
        """Whether they got through for so long."""
        return self.at - self.since >= age


# In one transaction: no more than is cancelled in a second or two.
_MOST_CANCELLED, _LEAST_CANCELLED = 10_000, 100


def most_cancelled(processes: int) -> int:
    """How many waiting requests of each of so many processes one transaction cancels."""
    return max(_MOST_CANCELLED // processes, _LEAST_CANCELLED)


@dataclass(frozen=True, slots=True)
class Zombie:
    """A task taken from a worker that is gone or ran too long: why, and what became of it."""

    task: TaskRef
    process_id: str
    task_type: TaskType
    worker_id: int
    reason: str
    disposition: Disposition
    cancelled: tuple[TaskRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Import:
    """A process to put as it is, with its history from 1 and at most one timer, held if it is broken."""

    namespace: str
    process_id: str
    idempotency_key: str
    status: Literal["running", "error"] = "running"
    detail: str | None = None
    aux_state: bytes | None = None
    metadata: Metadata | None = None
    events: Sequence[Event] = ()
    timer: SetTimer | None = None
    birth: int = field(default_factory=partial(secrets.randbits, 62))


class NewBulk(NamedTuple):
    """A bulk to make. `request_hash` is that of each repair, `bulk_hash` that of the whole request.

    `pace` is the time from one repair to the next.
    """

    namespace: str
    detail_like: str | None
    handler: str | None
    simple: bool
    args: bytes | None
    request_hash: bytes
    idempotency_key: str
    bulk_hash: bytes
    pace: timedelta


class Removed(NamedTuple):
    """Whether there was such a process, and the callers to tell."""

    existed: bool
    cancelled: tuple[TaskRef, ...]
