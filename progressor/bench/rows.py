"""Rows by the million, written by PostgreSQL itself: what would take a worker hours to make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from progressor.bench.flows import CHAIN, TIMERS

Run = Callable[..., list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How big the big ones are."""

    due: int = 100_000
    """Timers that are due at once."""
    waiting: int = 1_000_000
    """Timers that wait for a day far away."""
    falling: int = 1_000
    """Timers that fall due beside them."""
    rows: int = 5_000_000
    """Rows each in tasks and in events."""
    history: int = 30_000
    """Events of the longest history."""
    in_flight: int = 10_000
    """Steps that one worker runs at once."""

    def divided(self, by: int) -> Sizes:
        """Smaller ones, for a quick look."""
        return Sizes(*(max(10, getattr(self, name) // by) for name in self.__slots__))


# Processes as their init left them, each with a finished init task and a timer that waits.
_TIMERS = """
WITH process AS (
    INSERT INTO processes (
        namespace, process_id, status, status_changed_at, created_at, aux_state
    )
    SELECT
        %(namespace)s::text, %(prefix)s::text || lpad(i::text, 8, '0'),
        'running', now(), now(), '{"n":0}'::bytea
    FROM generate_series(1, %(count)s::bigint) AS i
    RETURNING namespace, process_id
),

timer AS (
    INSERT INTO tasks (namespace, process_id, task_type, status, scheduled_time)
    SELECT
        namespace, process_id, 'timeout', 'waiting',
        now() + %(first)s::float8 * interval '1 second'
        + (row_number() OVER () - 1) * %(gap)s::float8 * interval '1 second'
    FROM process
    RETURNING namespace, process_id, task_id, task_type, scheduled_time
)

INSERT INTO schedule (namespace, process_id, task_id, task_type, status, scheduled_time, claimable)
SELECT namespace, process_id, task_id, task_type, 'waiting', scheduled_time, TRUE
FROM timer
"""

# Ids are spread over the whole key space, as those of real processes are; the rows of a process are
# neighbours, as they come to be when it is written in one go.
_AGED_PROCESSES = """
INSERT INTO processes (
    namespace, process_id, status, status_changed_at, created_at, aux_state, last_event_id
)
SELECT %(namespace)s::text, md5(p::text), 'running', now(), now(), '{"n":100}'::bytea, 100
FROM generate_series(1, %(rows)s::bigint / 100) AS p
"""

_AGED_TASKS = """
INSERT INTO tasks (
    namespace, process_id, task_type, status, scheduled_time, running_time, finished_time, response
)
SELECT
    p.namespace, p.process_id, 'timeout', 'finished', now(), now(), now(), 'null'::bytea
FROM processes AS p, generate_series(1, 100) AS t
ORDER BY p.namespace, p.process_id
"""

_AGED_EVENTS = """
INSERT INTO events (namespace, process_id, event_id, task_id, timestamp, metadata, payload)
SELECT
    p.namespace, p.process_id, e, e, now(), '{"name": "step"}'::jsonb,
    convert_to('{"pad":"' || repeat('x', 54) || '"}', 'UTF8')
FROM processes AS p, generate_series(1, 100) AS e
ORDER BY p.namespace, p.process_id, e
"""


def add_timers(
    run: Run, prefix: str, count: int, *, first: float, gap: float = 0.0, namespace: str = TIMERS
) -> None:
    """Timers of new processes; the first falls due after `first` seconds, each next one `gap` later."""
    run(_TIMERS, namespace=namespace, prefix=prefix, count=count, first=first, gap=gap)


def _waiting(run: Run, sizes: Sizes) -> None:
    add_timers(run, "waiting-", sizes.waiting, first=30 * 86_400.0)
    _settle(run)


def _aged(run: Run, sizes: Sizes) -> None:
    run(_AGED_PROCESSES, namespace=CHAIN, rows=sizes.rows)
    run(_AGED_TASKS)
    run(_AGED_EVENTS)
    _settle(run)


def _settle(run: Run) -> None:
    """Leave no vacuum and no checkpoint of the load to the measurement."""
    run("VACUUM (ANALYZE)")
    run("CHECKPOINT")


LOADS: dict[str, Callable[[Run, Sizes], None]] = {"waiting": _waiting, "aged": _aged}
