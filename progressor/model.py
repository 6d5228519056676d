"""The nouns of the engine, as frozen values.

Rule: nothing in here talks to anything; the words are those of the glossary. What only the engine sees
of each step is a named tuple, which is made in a third of a frozen dataclass's time; so are tasks.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from pydantic_core import to_json

from progressor.errors import InvalidRequest

Metadata = dict[str, Any]
MAX_ID_LENGTH = 256

# Years that PostgreSQL and Python both hold, in any time zone. A timer beyond them would fail not only its
# own step but the whole batch that it is saved in.
_FIRST_YEAR, _LAST_YEAR = 1, 9999
_LONGEST_DELAY = timedelta(days=365_000)
LONGEST_SECONDS = _LONGEST_DELAY.total_seconds()
# A bigint.
LAST_ID = 2**63 - 1


class TaskType(StrEnum):
    """What a task asks of a process."""

    INIT = "init"
    CALL = "call"
    NOTIFY = "notify"
    REPAIR = "repair"
    TIMEOUT = "timeout"
    REMOVE = "remove"

    @property
    def is_timer(self) -> bool:
        """Timers wait for a time; all other tasks wait in the mailbox."""
        return self is TaskType.TIMEOUT or self is TaskType.REMOVE


class TaskStatus(StrEnum):
    """Where a task stands; the last three are final. Only timers are blocked or held."""

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
    """How the timer of a process stands."""

    WAITING = "waiting"
    """Its time is to come."""
    OVERDUE = "overdue"
    """Its time has passed, and no worker has taken it yet."""
    BLOCKED = "blocked"
    """A request runs or waits; it comes after that."""
    HELD = "held"
    """The process is broken; it comes back with the repair."""
    RUNNING = "running"
    """Its step runs."""


class Timer(NamedTuple):
    """A process's timer: what it will do (`timeout` or `remove`), when, and how it stands."""

    task_type: TaskType
    due: datetime
    status: TimerStatus


class ProcessStatus(StrEnum):
    """`init` until the first step is saved, then `running`, or `error` once it broke."""

    INIT = "init"
    RUNNING = "running"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a process's history.

    In an answer of a handler only `payload` and `metadata` count: `event_id` (gapless from 1 in each
    process), `timestamp` and `task_id` are set when the step is saved. `payload` is bytes for a raw
    handler and for storage, and the decoded JSON value for typed handlers and clients.
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
class HistoryRange:
    """Which events to load: at most `limit` (None: all), oldest (`forward`) or newest (`backward`) first.

    They begin behind the event whose id is `offset`: after it forward, before it backward; 0 begins with
    the first or the last one. So the last event id of a page is the offset of the next page, whatever is
    appended meanwhile.
    """

    offset: int = 0
    limit: int | None = None
    direction: Literal["forward", "backward"] = "forward"

    def __post_init__(self) -> None:
        if not _is_count(self.offset):
            raise InvalidRequest(
                f"HistoryRange.offset must be an event id, or 0: from 0 to {LAST_ID}", field="offset"
            )
        if self.limit is not None and not _is_count(self.limit):
            raise InvalidRequest(f"HistoryRange.limit must be from 0 to {LAST_ID}, or None", field="limit")
        if self.direction not in ("forward", "backward"):
            raise InvalidRequest(
                "HistoryRange.direction must be 'forward' or 'backward'", field="direction"
            )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LAST_ID


def in_utc(value: object) -> datetime | None:
    """An aware datetime in UTC; None for what is none, be it for an offset that cannot be."""
    try:
        if not isinstance(value, datetime) or value.utcoffset() is None:
            return None
        return value.astimezone(UTC)
    except Exception:  # noqa: BLE001 - whatever code a tzinfo brings along
        return None


def can_be_stored(moment: datetime) -> bool:
    """Whether PostgreSQL and Python hold a moment in UTC, and in any other time zone."""
    return _FIRST_YEAR < moment.year < _LAST_YEAR


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Replace the process's timer: at a time (aware datetime), or after a delay from the commit.

    With `remove=True` the process is removed at that time; otherwise its timeout handler runs.
    """

    at: datetime | None = None
    after: timedelta | None = None
    remove: bool = False

    def __post_init__(self) -> None:
        if (self.at is None) == (self.after is None):
            raise InvalidRequest("SetTimer needs exactly one of at= and after=", field="at")
        if self.at is not None:
            at = in_utc(self.at)
            if at is None:
                raise InvalidRequest("SetTimer.at must be an aware datetime (with tzinfo)", field="at")
            if not can_be_stored(at):
                raise InvalidRequest(f"SetTimer.at must lie before {_LAST_YEAR}", field="at")
            object.__setattr__(self, "at", at)
        if self.after is not None:
            if not isinstance(self.after, timedelta):
                raise InvalidRequest("SetTimer.after must be a timedelta", field="after")
            if not -_LONGEST_DELAY <= self.after <= _LONGEST_DELAY:
                raise InvalidRequest(
                    f"SetTimer.after must be at most {_LONGEST_DELAY.days} days", field="after"
                )


@dataclass(frozen=True, slots=True)
class UnsetTimer:
    """Cancel the process's timer and set no other."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the process, its history and its tasks, when this step is saved."""


Action = SetTimer | UnsetTimer | Remove


@dataclass(frozen=True, slots=True)
class Intent:
    """A handler's answer: what to save and what to reply. `None` keeps what the process has."""

    events: tuple[Event, ...] = ()
    action: Action | None = None
    response: bytes | None = None
    aux_state: bytes | None = None
    metadata: Metadata | None = None


def shown_id(node_id: int) -> str:
    """The id of a worker or client process, a random number, as people see it: 16 hexadecimal digits."""
    return f"{node_id:016x}"


class Life(NamedTuple):
    """One life of a process: its number, and the random `birth` that no other life has.

    A server that is promoted or restored may hand out the number again. A process from before births were
    kept has none.
    """

    process_no: int
    birth: int | None = None


class Task(NamedTuple):
    """One unit of work on a process. `attempts_count` says how often it was tried before.

    `name` is the call's (`call` and `notify` only); `process_no` is the number of this life of the process;
    `reply_to` is the client process that waits for the answer, if one does.
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


class Snapshot(NamedTuple):
    """What the tables say of a process at one moment; the engine's side of `Process`."""

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
    timer: Timer | None = None
    history: tuple[Event, ...] = ()
    birth: int | None = None

    @property
    def life(self) -> Life:
        """The life of the process that this shows."""
        return Life(self.process_no, self.birth)


@dataclass(frozen=True, slots=True)
class Success:
    """The handler answered."""

    intent: Intent


@dataclass(frozen=True, slots=True)
class Rejection:
    """The handler rejected the request; `invalid`: the request itself was wrong (name or arguments)."""

    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)
    invalid: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """The handler raised or ran out of time. `error_types` names the exception's classes, nearest first."""

    error: str
    error_types: tuple[str, ...] = ()
    retryable: bool = True


Outcome = Success | Rejection | Failure


class Disposition(StrEnum):
    """What becomes of the process when a step ends, named by what it does to its timer, or to all of it."""

    REPLACE = "replace"
    """A new timer replaces the old one."""
    RESUME = "resume"
    """The timer that was blocked or held, if any, resumes."""
    CANCEL = "cancel"
    """The timer, if any, is cancelled."""
    RETRY = "retry"
    """The same task runs again later."""
    BREAK = "break"
    """The process breaks: requests that wait are cancelled, its timer is held."""
    HOLD = "hold"
    """The process stays broken, and its timer held."""
    REMOVE = "remove"
    """The process and all its rows are deleted."""


class Reply(NamedTuple):
    """What the caller of a task gets: the response, or the rejection, or why it failed."""

    response: bytes | None = None
    rejection: Rejection | None = None
    error: str | None = None


class Decision(NamedTuple):
    """How a step ends: one row of the transition table, filled in.

    `status` None leaves the process as it was (a rejection, a failed repair). `timer` belongs to
    `replace`, and to `break` where a timer broke the process: it is the one that is held in its place.
    `retry_interval` belongs to `retry`; None: at once.
    """

    disposition: Disposition
    reply: Reply
    status: ProcessStatus | None = None
    events: tuple[Event, ...] = ()
    aux_state: bytes | None = None
    metadata: Metadata | None = None
    timer: SetTimer | None = None
    retry_interval: timedelta | None = None

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        size = len(self.aux_state or b"") + len(self.reply.response or b"")
        for event in self.events:
            size += len(event.payload) + metadata_size(event.metadata)
        return size + metadata_size(self.metadata)


def metadata_size(metadata: Metadata | None) -> int:
    """How large metadata are as JSON; 0 for a short name alone, which is all that most events have."""
    if not metadata:
        return 0
    name = metadata.get("name")
    if len(metadata) == 1 and isinstance(name, str) and len(name) <= MAX_ID_LENGTH:
        return 0
    return len(to_json(metadata))


def new_lease() -> int:
    """A number that no other claim has."""
    return secrets.randbits(62)
