"""The nouns of monitoring: namespaces, workers, mailboxes, failures.

Rule: what is counted is counted up to a bound, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

# How far people are told a count; of what is more they are told that it is.
MOST_COUNTED = 1000


class Waiting(NamedTuple):
    """How many tasks could be claimed now, and for how long the oldest of them has waited."""

    tasks: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The requests that wait on one process, counted up to 100,000; `at_least`: there are more.

    `age` is how long the oldest has waited. `through_in` is how long they will take at the pace of the last
    requests of the process, None if fewer than two of these ended within ten minutes.
    """

    process_id: str
    requests: int
    at_least: bool
    age: timedelta
    through_in: timedelta | None


@dataclass(frozen=True, slots=True)
class WaitingRequests:
    """The requests that wait in a namespace; `at_least`: there are more.

    `age` is how long the oldest has waited. `deepest` are the five mailboxes with the most of them, the
    deepest first, and the one in which the oldest waits. Of more than five with a hundred or more, it is
    those whose oldest has waited longest.
    """

    requests: int
    at_least: bool
    age: timedelta
    deepest: tuple[Mailbox, ...]

    def through_in(self, steps: int) -> timedelta | None:
        """How long they will take at so many steps a minute, None if that is unknown.

        The requests of a mailbox run one after the other, so it is no shorter than that of any mailbox.
        """
        if not self.requests:
            return timedelta()
        if steps <= 0 or any(each.through_in is None for each in self.deepest if each.requests > 1):
            return None
        alone = [each.through_in for each in self.deepest if each.through_in is not None]
        return max(timedelta(minutes=self.requests / steps), *alone, timedelta())


@dataclass(frozen=True, slots=True)
class KnownNamespace:
    """A namespace that some worker served, and who serves it now; `pause_reason` is why it is paused.

    `slots` are those of the live workers together, None if a worker of another kind registered it; how many
    of them are free, and how many `steps` they performed within a minute, they said at their last sign of
    life.
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
class KnownWorker:
    """An OS process that has a heartbeat; one that serves no namespace is a zombie collector.

    `silent_for` is the age of its last sign of life; longer than `lease_age`, it counts as dead.
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
        """Whether its lease is not over."""
        return self.silent_for < self.lease_age


@dataclass(frozen=True, slots=True)
class NamespaceStatus:
    """How a namespace does. `calls`, `timers`, `broken` and `started` are counted up to 1,001.

    `waiting` are all requests that wait, `through_in` is how long they will take at the pace of the last
    minute, None if it is unknown. `calls` and `timers` wait and could run now; `started` are the processes
    of the last minute, `steps` what its live workers performed in it; `next_timers` are the times of the
    next ones to fall due.
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
class Failed:
    """A broken process, or a timer that failed and is tried again; `handler` is what failed, with its name.

    `at_least`: there were more of its kind in its namespace than are looked at.
    """

    namespace: str
    status: str
    process_id: str
    handler: str
    error: str
    at: datetime
    at_least: bool
