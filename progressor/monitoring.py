"""The nouns of monitoring: namespaces, workers, mailboxes, failures.

Rule: every count has a bound, and shows if it reached it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from progressor.config import Retention

# Rows; counts stop one above it, and the status shows 1,000+.
MOST_COUNTED = 1000
_WITH_ARCHIVE = " that has an archive (PROGRESSOR_ARCHIVE)"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The number of tasks that could be claimed now, and the wait of the oldest of them."""

    tasks: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The requests that wait on one process, counted up to 100,000; `at_least`: there are more.

    `age` is the wait of the oldest. `through_in` is the time they will take at the pace of the process's
    last requests, None if fewer than two of these ended within ten minutes.
    """

    process_id: str
    requests: int
    at_least: bool
    age: timedelta
    through_in: timedelta | None


@dataclass(frozen=True, slots=True)
class WaitingRequests:
    """The requests that wait in a namespace; `at_least`: there are more.

    `age` is the wait of the oldest. `deepest` are the five mailboxes with the most requests, the deepest
    first, and the one in which the oldest request waits. If more than five have a hundred or more,
    `deepest` are those of them whose oldest request has waited longest.
    """

    requests: int
    at_least: bool
    age: timedelta
    deepest: tuple[Mailbox, ...]

    def through_in(self, steps: int) -> timedelta | None:
        """Return the time they will take at so many steps a minute, None if it is unknown.

        It is never shorter than that of any mailbox, whose requests run one after the other.
        """
        if not self.requests:
            return timedelta()
        if steps <= 0 or any(each.through_in is None for each in self.deepest if each.requests > 1):
            return None
        alone = [each.through_in for each in self.deepest if each.through_in is not None]
        return max(timedelta(minutes=self.requests / steps), *alone, timedelta())

    def at_a_standstill(self) -> WaitingRequests:
        """Return them as they are where no worker runs any: the pace of before tells nothing."""
        deepest = tuple(replace(each, through_in=None) for each in self.deepest)
        return replace(self, deepest=deepest)


@dataclass(frozen=True, slots=True)
class KnownNamespace:
    """A namespace that a worker has registered, and its live `workers`; `pause_reason` is an operator's.

    `slots` are those of the live workers together, None if a worker of another kind registered it.
    `free_slots`, and the `steps` that they performed within a minute, are those of their last heartbeats.
    """

    name: str
    paused: bool
    workers: int
    slots: int | None
    free_slots: int
    steps: int
    updated_at: datetime
    pause_reason: str | None = None


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group of processes: its limit (None: none), and how many tasks run and wait for room.

    `waiting` is counted up to 1,001; `age` is the wait of the oldest. `has_own_limit`: it is not that of
    the namespace.
    """

    namespace: str
    name: str
    limit: int | None
    has_own_limit: bool
    running: int
    waiting: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class KnownRetention:
    """The times for which a namespace keeps what has ended, and the last walk that deleted the rest.

    None: for ever. Events are kept for `events_for`, or the newest `events_last` of each process. `is_set`:
    an operator has set it, else its code says it. `tasks_deleted`, `events_deleted` and `passed_by`,
    processes that a step held, are of the walk that runs, or of the last one. `next_at` is its next round.
    `archive`: what is deleted is archived first. `fault`: what is wrong with times that this release cannot
    read; everything is kept then.
    """

    namespace: str
    is_set: bool
    tasks: timedelta | None
    keys: timedelta | None
    events_for: timedelta | None
    events_last: int | None
    began_at: datetime | None
    ended_at: datetime | None
    tasks_deleted: int
    events_deleted: int
    passed_by: int
    next_at: datetime | None
    archive: bool = False
    fault: str | None = None

    @property
    def is_walking(self) -> bool:
        """True while a walk has begun and not ended."""
        return self.began_at is not None and self.ended_at is None

    def waits_for(self, now: datetime) -> str | None:
        """Return for which service a round waits that is due; None if none does, or nothing is deleted."""
        if self.retention.is_for_ever or self.next_at is None or self.next_at > now:
            return None
        return f"a zombie collector{_WITH_ARCHIVE if self.archive else ''}"

    @property
    def retention(self) -> Retention:
        """The same times as code states them."""
        events = self.events_last if self.events_for is None else self.events_for
        return Retention(tasks=self.tasks, keys=self.keys, events=events, archive=self.archive)


@dataclass(frozen=True, slots=True)
class RetentionEstimate:
    """An estimate of what a retention would delete now, from a sample of the tables' pages.

    `is_exact`: the sample was all pages. Bytes are those of rows, without indexes.
    """

    namespace: str
    tasks: int
    old_tasks: int
    old_task_bytes: int
    events: int
    old_events: int
    old_event_bytes: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class KnownWorker:
    """An OS process that has a heartbeat; one that serves no namespace is a zombie collector.

    `silent_for` is the age of its last heartbeat; from `lease_age` on, it counts as dead.
    """

    worker_id: str
    host: str
    namespaces: tuple[str, ...]
    free_slots: Mapping[str, int]
    started_at: datetime
    seen_at: datetime
    silent_for: timedelta
    lease_age: timedelta

    @property
    def is_live(self) -> bool:
        """True while its last heartbeat is younger than its lease_age."""
        return self.silent_for < self.lease_age


@dataclass(frozen=True, slots=True)
class NamespaceStatus:
    """The load of a namespace. `calls`, `timers`, `broken` and `started` are counted up to 1,001.

    `waiting` are all requests that wait, `through_in` is the time they will take at the pace of the last
    minute, None if it is unknown. `calls` and `timers` wait and could run now. `started` counts the
    processes of the last minute, `steps` the steps that its live workers performed in it. `next_timers`
    are the times of the next timers to fall due.
    """

    name: str
    paused: bool
    workers: int
    slots: int | None
    free_slots: int
    running: int
    waiting: WaitingRequests
    through_in: timedelta | None
    calls: Waiting
    timers: Waiting
    broken: int
    started: int
    steps: int
    next_timers: tuple[datetime, ...]
    pause_reason: str | None = None


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The load of namespaces together in one minute, `at`, as their status was then.

    `waiting` are requests, `age` the wait of the oldest, `timers` those that were due. `slots` is None if
    workers of another kind served them.
    """

    at: datetime
    broken: int
    waiting: int
    timers: int
    running: int
    steps: int
    slots: int | None
    age: timedelta


@dataclass(frozen=True, slots=True)
class Failed:
    """A broken process, or a timer that failed and is tried again; `handler` names the handler that failed.

    `at_least`: its namespace has more of its kind than were looked at.
    """

    namespace: str
    status: str
    process_id: str
    handler: str
    error: str
    at: datetime
    at_least: bool


@dataclass(frozen=True, slots=True)
class TableFigures:
    """A table of the engine: bytes with its indexes, rows as PostgreSQL counts them, its last vacuum."""

    name: str
    size: int
    live_rows: int
    dead_rows: int
    vacuumed_at: datetime | None


@dataclass(frozen=True, slots=True)
class StandbyFigures:
    """A standby that receives from the server; `behind` is in bytes, None if the role may not see it."""

    name: str
    state: str | None
    sync_state: str | None
    lag: timedelta | None
    behind: int | None


@dataclass(frozen=True, slots=True)
class SlotFigures:
    """A replication slot, and the bytes of the write-ahead log that it keeps on the disk."""

    name: str
    is_active: bool
    standing: str | None
    kept: int | None


@dataclass(frozen=True, slots=True)
class DatabaseFigures:
    """The database as its operator looks at it.

    `revision` is that of its schema. `oldest_snapshot_ms` is the age of the oldest transaction that holds
    up VACUUM, None if the role may not see it.
    """

    server_version: str
    started_at: datetime
    connections: int
    most_connections: int
    revision: str | None
    oldest_snapshot_ms: float | None
    tables: tuple[TableFigures, ...]
    standbys: tuple[StandbyFigures, ...]
    slots: tuple[SlotFigures, ...]

    @property
    def oldest_snapshot(self) -> timedelta | None:
        """The same age as a duration."""
        return None if self.oldest_snapshot_ms is None else timedelta(milliseconds=self.oldest_snapshot_ms)
