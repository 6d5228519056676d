"""The nouns of the engine, as frozen values.

Rule: this module does no I/O, and its words are those of the glossary. Tasks, and values of a step that
only the engine sees, are named tuples, which are made in a third of a frozen dataclass's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, get_args

from pydantic_core import to_json

from progressor.calendars import Rule
from progressor.inputs import DRY_RUN, MAX_ID_LENGTH
from progressor.messages.message import Message
from progressor.timers import TimerChange
from progressor.timers.recurrence import Drift, Occurrence, Recurrence, occurrence_of
from progressor.trace_context import traceparent_of, tracestate_of

Metadata = dict[str, Any]


class TaskType(StrEnum):
    """The types of tasks."""

    INIT = "init"
    CALL = "call"
    NOTIFY = "notify"
    REPAIR = "repair"
    TIMEOUT = "timeout"
    REMOVE = "remove"

    def __init__(self, value: str) -> None:
        self.is_timer: Final = value in ("timeout", "remove")
        """True of timers, which wait for their time; all other tasks wait in the mailbox."""


class TaskStatus(StrEnum):
    """The statuses of a task; the last three are final. Only timers are blocked or held."""

    WAITING = "waiting"
    RUNNING = "running"
    BLOCKED = "blocked"
    HELD = "held"
    FINISHED = "finished"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (TaskStatus.FINISHED, TaskStatus.ERROR, TaskStatus.CANCELLED)


class TimerStatus(StrEnum):
    """The statuses of a timer of a process."""

    WAITING = "waiting"
    """Its time is to come."""
    OVERDUE = "overdue"
    """Its time has passed, and no worker has taken it yet."""
    BLOCKED = "blocked"
    """A step runs or a request waits on the process; the timer comes after it."""
    HELD = "held"
    """The process is broken; the timer waits again after the repair."""
    RUNNING = "running"
    """Its step runs."""


class Timer(NamedTuple):
    """A timer of a process: its type (`timeout` or `remove`), the time at which it is due, its status.

    `name` is empty for the timer without a name. Of one that recurs clients see `every` and `drift` as they
    were set, and the `nominal` time; handlers do not. `every` is None for a rule of a newer release.
    """

    task_type: TaskType
    due: datetime
    status: TimerStatus
    name: str = ""
    every: timedelta | Rule | None = None
    drift: Drift | None = None
    nominal: datetime | None = None

    @property
    def next(self) -> datetime | None:
        """The nominal time after `nominal`; None if the rule has ended, or counts from the step's end."""
        if self.every is None or self.nominal is None or self.drift == "after":
            return None
        return Recurrence(self.every).after(self.nominal, self.nominal)


class ProcessStatus(StrEnum):
    """The statuses of a process: `init` until its init is saved, then `running`; `error` once it broke."""

    INIT = "init"
    RUNNING = "running"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a process's history.

    A handler gives only `payload` and `metadata`; `event_id` (gapless from 1 in each process), `timestamp`
    and `task_id` are set when the step is saved. `payload` is bytes for a raw handler and for storage, and
    the decoded JSON value for typed handlers and clients.
    """

    payload: Any = b""
    metadata: Metadata = field(default_factory=dict)
    event_id: int = 0
    timestamp: datetime | None = None
    task_id: int | None = None

    @property
    def name(self) -> str | None:
        """The event's name, kept in its metadata."""
        name = self.metadata.get("name")
        return name if name is None else str(name)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the process, its history and its tasks, when this step is saved."""


Action = TimerChange | Remove


@dataclass(frozen=True, slots=True)
class Intent:
    """A handler's answer: what to save and what to reply.

    None for `action`, `aux_state` or `metadata` leaves the timers, the state or the metadata as they are.
    An action that is a tuple changes several timers, each at most once. `messages` are sent with the save.
    """

    events: tuple[Event, ...] = ()
    action: Action | tuple[TimerChange, ...] | None = None
    response: bytes | None = None
    aux_state: bytes | None = None
    metadata: Metadata | None = None
    messages: tuple[Message, ...] = ()

    @property
    def changes(self) -> tuple[TimerChange, ...]:
        """The changes of timers; none beside a removal."""
        if self.action is None or isinstance(self.action, Remove):
            return ()
        return self.action if isinstance(self.action, tuple) else (self.action,)


def shown_id(node_id: int) -> str:
    """Return the random id of a worker or a client as people see it: 16 hexadecimal digits."""
    return f"{node_id:016x}"


class Life(NamedTuple):
    """One life of a process: its number, and the random `birth` that no other life has.

    A server that is promoted or restored may hand out the number again. A process that was made before
    births were kept has none.
    """

    process_no: int
    birth: int | None = None


class Task(NamedTuple):
    """One unit of work on a process. `attempts_count` counts its earlier tries.

    `name` is the call's or timer's, None for a timer without; `process_no` is the number of this life of
    the process; `reply_to` is the client process that waits. Not begun by `expires_at`, it is refused.
    `trace` is its trace context as it is stored, None if it has none.
    """

    namespace: str
    process_id: str
    task_id: int
    task_type: TaskType
    name: str | None = None
    args: bytes | None = None
    context: bytes | None = None
    idempotency_key: str | None = None
    scheduled_time: datetime | None = None
    running_time: datetime | None = None
    last_retry_interval: timedelta | None = None
    attempts_count: int = 0
    process_no: int = 0
    reply_to: int | None = None
    worker_id: int = 0
    lease: int = 0
    request_hash: bytes | None = None
    expires_at: datetime | None = None
    trace: str | None = None

    @property
    def traceparent(self) -> str | None:
        """The W3C traceparent of the request, of the step that set the timer, or None."""
        return None if self.trace is None else traceparent_of(self.trace)

    @property
    def tracestate(self) -> str | None:
        """The W3C tracestate beside `traceparent`; None if there is none."""
        return None if self.trace is None else tracestate_of(self.trace)

    @property
    def occurrence(self) -> Occurrence | None:
        """The occurrence of a recurring timer, which its task keeps as args; None for all other tasks."""
        return occurrence_of(self.args) if self.args is not None and self.task_type.is_timer else None

    @property
    def nominal(self) -> datetime | None:
        """The time that a recurring timer meant, whenever it runs; None for all other tasks."""
        occurrence = self.occurrence
        return None if occurrence is None else occurrence.nominal

    @property
    def missed(self) -> int:
        """The times of a recurring timer for which this step stands beside its own; 0 for other tasks.

        It counts up to 1,000.
        """
        occurrence = self.occurrence
        return (
            0 if occurrence is None or self.running_time is None else occurrence.missed(self.running_time)
        )

    @property
    def is_dry_run(self) -> bool:
        """True of the dry run of a repair: nothing of its step is saved, so it must do nothing outside."""
        return self.name == DRY_RUN and self.task_type is TaskType.REPAIR

    @property
    def function(self) -> str:
        """The function that serves it, as workers list theirs: `call pay`, `timeout dunning`, `init`."""
        if self.name is None or self.task_type in (TaskType.REMOVE, TaskType.REPAIR):
            return self.task_type.value
        return f"{'timeout' if self.task_type is TaskType.TIMEOUT else 'call'} {self.name}"


class Snapshot(NamedTuple):
    """A process as the tables had it at one moment; the engine's side of `Process`."""

    process_no: int
    namespace: str
    process_id: str
    status: ProcessStatus
    previous_status: ProcessStatus | None
    status_changed_at: datetime
    created_at: datetime
    detail: str | None
    aux_state: bytes | None
    metadata: Metadata
    corrupted_by: int | None
    last_event_id: int
    timers: tuple[Timer, ...] = ()
    history: tuple[Event, ...] = ()
    birth: int | None = None
    group_no: int | None = None
    first_event_id: int = 1
    swept_until: int = 0

    @property
    def life(self) -> Life:
        """The life of the process that this snapshot shows."""
        return Life(self.process_no, self.birth)


FeedKind = Literal["event", "created", "step", "broken", "repaired", "removed"]
"""The kinds of FeedEvents: an event of a process, or what happened to the process."""
FEED_KINDS: tuple[FeedKind, ...] = get_args(FeedKind)
FEED_LETTERS: Mapping[str, FeedKind] = {
    "e": "event",
    "c": "created",
    "s": "step",
    "b": "broken",
    "p": "repaired",
    "r": "removed",
}
"""The kinds by the letters that stand for them in the tables."""


class WantedConnection(NamedTuple):
    """The connection that a handler asks for; `type` is the annotated class."""

    kind: Literal["psycopg", "connection", "session"]
    is_async: bool
    type: type[Any]


@dataclass(frozen=True, slots=True)
class Success:
    """The handler answered."""

    intent: Intent


@dataclass(frozen=True, slots=True)
class Rejection:
    """The request is refused: by its handler, as `invalid` (name or arguments), or because it `expired`."""

    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)
    invalid: bool = False
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """The handler raised or ran out of time. `error_types` names the exception's classes, nearest first."""

    error: str
    error_types: tuple[str, ...] = ()
    retryable: bool = True


Outcome = Success | Rejection | Failure


class Disposition(StrEnum):
    """The fates of a process when a step ends, named by what they do to its timers, or to all of it."""

    REPLACE = "replace"
    """A new timer replaces the old one of its name."""
    RESUME = "resume"
    """The timers that were blocked or held, if any, resume."""
    CANCEL = "cancel"
    """The timer of a name, if any, is cancelled."""
    RETRY = "retry"
    """The same task runs again later."""
    BREAK = "break"
    """The process breaks: requests that wait are cancelled, its timers are held."""
    HOLD = "hold"
    """The process stays broken, and its timers held."""
    REMOVE = "remove"
    """The process and all its rows are deleted."""


class Reply(NamedTuple):
    """The answer for the caller of a task: the response, the rejection, or why it failed."""

    response: bytes | None = None
    rejection: Rejection | None = None
    error: str | None = None


class Decision(NamedTuple):
    """The end of a step: one row of the transition table, filled in.

    `status` None leaves the status as it was (a rejection, a failed repair). `timer` belongs to `replace`
    and `cancel`, and to `break` if a timer broke the process: it is held in place of that timer. `changes`
    are those of a step that changes several timers, and then resumes. `retry_interval` belongs to `retry`;
    None: at once. `trace` is the trace context of the step's span; None if it has no span. `feeds`: the
    namespace has a feed, to which the step is appended.
    """

    disposition: Disposition
    reply: Reply
    status: ProcessStatus | None = None
    events: tuple[Event, ...] = ()
    aux_state: bytes | None = None
    metadata: Metadata | None = None
    timer: TimerChange | None = None
    changes: tuple[TimerChange, ...] = ()
    retry_interval: timedelta | None = None
    messages: tuple[Message, ...] = ()
    trace: str | None = None
    feeds: bool = False

    @property
    def succeeded(self) -> bool:
        """True if the handler answered, and what it did is saved: it was no dry run."""
        has_answered = self.reply.error is None and self.reply.rejection is None
        return has_answered and self.disposition is not Disposition.HOLD

    @property
    def size(self) -> int:
        """The approximate size in bytes of what it saves and replies."""
        size = len(self.aux_state or b"") + len(self.reply.response or b"")
        for event in self.events:
            size += len(event.payload) + metadata_size(event.metadata)
        for message in self.messages:
            size += message.size
        return size + metadata_size(self.metadata) if self.metadata else size


def metadata_size(metadata: Metadata | None) -> int:
    """Return the size of metadata as JSON, in bytes; 0 for a short name alone, as most events have it."""
    if not metadata:
        return 0
    name = metadata.get("name")
    if len(metadata) == 1 and isinstance(name, str) and len(name) <= MAX_ID_LENGTH:
        return 0
    return len(to_json(metadata))
