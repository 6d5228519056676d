"""The options a user states in code: validated once, frozen, durations as timedelta."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import to_json

from progressor.errors import InvalidRequest
from progressor.errors.wordings import fault_text
from progressor.inputs import MAX_ID_LENGTH, HistoryRange
from progressor.model import Event, Metadata, metadata_size

# Steps; the largest limit of a group, and of a rate.
MOST_OF_A_GROUP = MOST_OF_A_RATE = 1_000_000
# Steps at once; the largest `concurrency`.
MOST_AT_ONCE = 10_000
# The schema of the tables unless a user names another one; the SQL files are written with this name.
DEFAULT_SCHEMA = "progressor"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def _exception_name(value: Any) -> str:
    if isinstance(value, type) and issubclass(value, BaseException):
        return value.__name__
    if isinstance(value, str) and value:
        return value
    raise ValueError("must be an exception class or the name of one")


def _schema_name(value: str) -> str:
    if not _SCHEMA.fullmatch(value) or value.startswith("pg_"):
        raise ValueError(
            "must be 1 to 63 lower-case letters, digits and underscores, and not begin with pg_"
        )
    return value


SchemaName = Annotated[str, AfterValidator(_schema_name)]
ExceptionName = Annotated[type[BaseException] | str, BeforeValidator(_exception_name)]
"""An exception class or the name of one, kept as the name."""
# Above 0, up to ten years: Python and PostgreSQL can still add such a duration to a moment, or multiply it.
Positive = Annotated[timedelta, Field(gt=timedelta(0), le=timedelta(days=3650))]


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, *values: Any, **named: Any) -> None:
        places = [name for name, field in type(self).model_fields.items() if field.kw_only is False]
        if len(values) > len(places) or any(name in named for name in places[: len(values)]):
            raise InvalidRequest(
                f"{type(self).__name__} takes {len(places)} values by their places, and none of them twice",
                field="options",
            )
        try:
            super().__init__(**dict(zip(places, values, strict=False)), **named)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "options"
            raise InvalidRequest(
                f"{type(self).__name__}.{where}: {fault_text(first)}", field=where
            ) from None


class RetryPolicy(_Options):
    """The retries of a failed timer: after which intervals, how many, and of which errors.

    The n-th retry waits `initial_interval * backoff_coefficient ** (n - 1)`, at most `max_interval`; both
    intervals are timedeltas. `max_attempts` counts all attempts, the first included (None: no limit).
    `non_retryable` lists exception classes, or names of classes, after which there is no retry; a base
    class covers its subclasses. Raises InvalidRequest for a value out of range.

    The default outlives an outage of half a day: 59 retries, ten of them from 1 s to 512 s apart and the
    others 15 minutes, are 12 hours and 32 minutes.
    """

    initial_interval: Positive = Field(default=timedelta(seconds=1), kw_only=False)
    backoff_coefficient: float = Field(default=2.0, ge=1.0, le=1000.0, allow_inf_nan=False, kw_only=False)
    max_interval: Positive = Field(default=timedelta(minutes=15), kw_only=False)
    max_attempts: int | None = Field(default=60, ge=1, le=1_000_000, kw_only=False)
    non_retryable: tuple[ExceptionName, ...] = Field(default=(), kw_only=False)

    def interval_after(self, attempts: int, last: timedelta | None) -> timedelta | None:
        """Return the wait after so many attempts, `last` being the wait before; None: no more attempts.

        After the first attempt `last` is that of a run which was no attempt, and does not count.
        """
        if self.max_attempts is not None and attempts >= self.max_attempts:
            return None
        if last is None or attempts <= 1:
            return min(self.initial_interval, self.max_interval)
        return min(last * self.backoff_coefficient, self.max_interval)


# Microseconds from one begin to the next at the highest rate: below, whole ones would miss it by too much.
_SHORTEST = 10
# The longest time in which what a burst may use comes back.
_LONGEST = timedelta(days=3650)
# The shortest time for which anything is kept: far longer than a caller waits, or tries again.
_SHORTEST_KEPT = timedelta(hours=1)
_MOST_KEPT = 1_000_000_000


class Rate(_Options):
    """A rate at which steps begin: `limit` in each span of `per`, over all workers.

    What is not used is kept, up to `burst` begins (default: `limit`), which may come at once. So in no span
    of `per` more than `limit + burst` begin. InvalidRequest for a value out of range.
    """

    limit: int = Field(ge=1, le=MOST_OF_A_RATE)
    per: timedelta = Field(gt=timedelta(0), le=timedelta(days=31))
    burst: int = Field(ge=1, le=MOST_OF_A_RATE)

    def __init__(self, limit: int, *, per: timedelta, burst: int | None = None) -> None:
        super().__init__(limit=limit, per=per, burst=limit if burst is None else burst)

    @model_validator(mode="after")
    def _can_be_kept(self) -> Self:
        if self.per < self.limit * timedelta(microseconds=_SHORTEST):
            raise ValueError("limit must be at most 100,000 a second")
        if self.interval * self.burst > _LONGEST:
            raise ValueError("burst must come back within ten years at this rate")
        return self

    @property
    def interval(self) -> timedelta:
        """The time from one begin to the next at this rate: whole microseconds, rounded up."""
        return timedelta(microseconds=-(-self.per // timedelta(microseconds=self.limit)))


class Rates(NamedTuple):
    """The rates of a namespace, and of each of its groups; None: any.

    `enters`: an init without a group does not begin, because its process is still to enter one.
    """

    all: Rate | None = None
    group: Rate | None = None
    enters: bool = False

    @property
    def any(self) -> bool:
        """True if there is one."""
        return self.all is not None or self.group is not None


NO_RATES = Rates()


class Retention(_Options):
    """For how long a namespace keeps what has ended; None: for ever.

    `tasks`: ended tasks, with their arguments and answers, an hour at least. `keys`: those with an
    idempotency key, if longer than `tasks` (default: as long); a request that is repeated later is run
    again. `events`: those younger than a time, or the newest so many of each process. What waits or runs is
    kept, and so is the task that broke a process until it is repaired. `archive`: what is to be deleted is
    written to the archive first (`PROGRESSOR_ARCHIVE`); sweepers without one delete nothing. InvalidRequest
    for a value out of range.
    """

    tasks: timedelta | None = Field(default=None, ge=_SHORTEST_KEPT, le=_LONGEST)
    keys: timedelta | None = Field(default=None, ge=_SHORTEST_KEPT, le=_LONGEST)
    events: timedelta | int | None = None
    archive: bool = False

    @field_validator("events")
    @classmethod
    def _in_range(cls, events: timedelta | int | None) -> timedelta | int | None:
        if isinstance(events, timedelta) and not _SHORTEST_KEPT <= events <= _LONGEST:
            raise ValueError("a time must be from an hour to ten years")
        if isinstance(events, int) and not 1 <= events <= _MOST_KEPT:
            raise ValueError(f"a number must be from 1 to {_MOST_KEPT:,}")
        return events

    @field_validator("keys")
    @classmethod
    def _are_of_tasks(cls, keys: timedelta | None, info: ValidationInfo) -> timedelta | None:
        if keys is None or "tasks" not in info.data:
            return keys
        tasks = info.data["tasks"]
        if tasks is None:
            raise ValueError(
                "without a time for tasks all are kept, those with a key too: give tasks a time"
            )
        if keys < tasks:
            raise ValueError("a task with a key must be kept at least as long as one without")
        return keys

    @property
    def is_for_ever(self) -> bool:
        """True if nothing is ever deleted."""
        return self.tasks is None and self.events is None


FOR_EVER = Retention()


def check_retention(value: Any) -> Retention | None:
    """Return a retention or None; raise InvalidRequest for anything else."""
    if not isinstance(value, Retention | None):
        raise InvalidRequest("retention must be a Retention or None", field="retention")
    return value


def check_deleting(value: Any) -> Retention | None:
    """Return a retention that deletes something, or None; raise InvalidRequest for anything else."""
    if check_retention(value) == FOR_EVER:
        raise InvalidRequest("this retention is for ever, and deletes nothing", field="retention")
    return check_retention(value)


OnZombie = Literal["policy", "retry", "error"]


class NamespaceOptions(_Options):
    """The options of a namespace; the workers that serve it write them to the `namespaces` table."""

    retry_policy: RetryPolicy = RetryPolicy()
    step_timeout: Positive = timedelta(seconds=60)
    concurrency: int = Field(default=100, ge=1, le=MOST_AT_ONCE)
    on_zombie: OnZombie = "policy"
    zombie_attempts: int = Field(default=3, ge=1, le=1_000_000)
    history: HistoryRange | None = None
    pause: Positive | None = None
    group_limit: int | None = Field(default=None, ge=1, le=MOST_OF_A_GROUP)
    rate: Rate | None = None
    group_rate: Rate | None = None
    retention: Retention | None = None
    feed: bool = False


class ConnectionOptions(_Options):
    """The options that a client and an engine share, for their work with PostgreSQL."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    signals: bool = True
    """Use LISTEN, NOTIFY and other state of a session (prepared statements, SET). False suits a pooler
    in transaction mode; everything then works by scanning and polling."""
    listen_database_url: SecretStr | None = None
    """URL past a pooler in transaction mode, for LISTEN and the heartbeats of workers: the same database,
    on connections of their own. All else goes through the pooler and leaves nothing in its sessions. Unset:
    the database's own URL."""
    database_schema: SchemaName = DEFAULT_SCHEMA
    """The PostgreSQL schema in which the tables live: lower-case letters, digits and underscores."""
    connections: int = Field(default=8, ge=2, le=1000)
    """Connections for operations at most; reads use up to 4 more, a listener and a heartbeat 1 each."""
    patience: Positive = timedelta(seconds=30)
    """The time for which an operation is repeated while PostgreSQL cannot be reached."""
    actor: str | None = None
    """The name under which the audit notes what an operator does here, unless `acting` gives another.
    Unset: the user of the operating system for commands, the role of the database for other clients."""
    archive: SecretStr | None = None
    """The archive of what retention deletes: a directory, or a URL (`s3://bucket/prefix`) with the extra
    `archive`. Sweepers write it for namespaces whose retention asks for it; histories are read from it."""
    reply_timeout: Positive = timedelta(seconds=60)
    """The time for which a request waits for its answer, unless it has a timeout of its own."""
    reply_poll_interval: Positive = timedelta(seconds=1)
    """The interval at which an awaited answer is looked up if no hint comes."""
    lease_age: Positive = timedelta(seconds=15)
    """A worker is dead when its heartbeat is older than this, or than its own lease_age if longer."""
    max_value_bytes: int = Field(default=8 << 20, ge=1, le=128 << 20)
    """The size limit of one stored value: args, a context, a state, an answer, an event payload."""
    max_metadata_bytes: int = Field(default=64 << 10, ge=2, le=16 << 20)
    """The size limit of the metadata of a process or of an event, as JSON."""
    max_events_bytes: int = Field(default=64 << 20, ge=1, le=256 << 20)
    """The size limit of all events of one step, or of one import, together."""

    @field_validator("listen_database_url")
    @classmethod
    def _needs_signals(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is not None and not info.data.get("signals", True):
            raise ValueError("needs signals, which are off")
        return value

    @field_validator("actor")
    @classmethod
    def _is_one_line(cls, value: str | None) -> str | None:
        if value is not None and not (value.isprintable() and 1 <= len(value) <= MAX_ID_LENGTH):
            raise ValueError(f"must have 1 to {MAX_ID_LENGTH} printable characters")
        return value

    @property
    def session_state(self) -> bool:
        """True if sessions may keep state from one transaction to the next: a pooler's may not."""
        return self.signals and self.listen_database_url is None

    def check_value(self, field: str, value: bytes | None) -> bytes | None:
        """Return the value; raise InvalidRequest if it has more than `max_value_bytes`."""
        if value is not None:
            _check_size(field, len(value), self.max_value_bytes, "max_value_bytes")
        return value

    def check_metadata(self, field: str, metadata: Metadata | None) -> Metadata | None:
        """Return the metadata; raise InvalidRequest if their JSON has more than `max_metadata_bytes`."""
        if metadata:
            _check_size(field, len(to_json(metadata)), self.max_metadata_bytes, "max_metadata_bytes")
        return metadata

    def check_events(self, field: str, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events; raise InvalidRequest if one of them, or all together, are too large."""
        payloads = beside = 0
        for event in events:
            payloads += len(event.payload)
            beside += metadata_size(event.metadata)
        if payloads > self.max_value_bytes or beside > self.max_metadata_bytes:
            # These are sums: look whether a single event is over the limit.
            for place, event in enumerate(events):
                name, size = f"{field}[{place}]", metadata_size(event.metadata)
                self.check_value(name, event.payload)
                _check_size(name, size, self.max_metadata_bytes, "max_metadata_bytes")
        _check_size(field, payloads + beside, self.max_events_bytes, "max_events_bytes")
        return events


class EngineOptions(ConnectionOptions):
    """The options of an engine, for its services and its steps; intervals have a jitter of a tenth."""

    scan_interval: Positive = timedelta(seconds=3)
    """A scanner looks at calls and timers after a third of it, and sooner when a timer falls due."""
    scanner: bool = True
    """Run a scanner in the worker."""
    zombie_collector: bool = True
    """Run a zombie collector in the worker."""
    zombie_interval: Positive = timedelta(seconds=5)
    """The interval at which zombies are collected."""
    zombie_grace: Positive = timedelta(seconds=10)
    """A running task is a zombie once it outlived its step_timeout by this much."""
    retention_rate: float = Field(default=1000.0, gt=0, le=1_000_000)
    """Tasks and events that retention deletes a second in each namespace, at most."""
    heartbeat_interval: Positive = Field(default=timedelta(seconds=3), validate_default=True)
    """How often a worker says that it lives, at least three times per lease_age."""
    stop_grace: Positive = timedelta(seconds=30)
    """The time that a worker which stops gives its steps to finish."""
    concurrency: int = Field(default=MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE)
    """The most steps of each namespace at once in a worker, even if the Namespace allows more."""
    fuse: Literal["learned", "always", "never"] = "learned"
    """The requests and timers that this process accepts or claims, runs and saves in one transaction, if
    they can be.

    `learned`: those of functions that were seen to compute briefly and to wait for nothing; `always`: all
    but those of functions with `fused=False`; `never`: none.
    """
    connection_slots: int = Field(default=8, ge=1, le=1000)
    """Steps at once whose handlers run SQL of their own (`connection`): connections beside the others,
    opened when such a step runs."""
    max_step_events: int = Field(default=10_000, ge=1, le=1_000_000)
    """The limit of the events of one step."""

    @field_validator("heartbeat_interval")
    @classmethod
    def _beats_often(cls, value: timedelta, info: ValidationInfo) -> timedelta:
        lease_age = info.data.get("lease_age")
        if lease_age is not None and 3 * value > lease_age:
            raise ValueError(
                f"must be at most a third of lease_age ({lease_age.total_seconds():g} s), "
                f"not {value.total_seconds():g} s: raise lease_age to {3 * value.total_seconds():g} s, "
                "or lower heartbeat_interval"
            )
        return value


def _check_size(field: str, size: int, most: int, setting: str) -> None:
    """Raise InvalidRequest if there are more bytes than the setting allows."""
    if size > most:
        raise InvalidRequest(
            f"{field} must have at most {most:,} bytes ({setting}), not {size:,}", field=field
        )
