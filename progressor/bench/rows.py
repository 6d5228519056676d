"""Rows by the million, written by PostgreSQL itself, because a worker would need hours for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from functools import partial
from typing import Any, Self

from progressor.bench.flows import TIMERS, Names

Run = Callable[..., list[dict[str, Any]]]
Load = Callable[[Run], None]
"""Fills a database before it is measured."""

FAR_AWAY = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the big cases."""

    due: int = 100_000
    """Timers that are due at once."""
    waiting: int = 1_000_000
    """Timers that wait for a day far away."""
    falling: int = 1_000
    """Timers that fall due beside them."""

    def quick(self) -> Self:
        """Return a hundredth of all sizes, for a quick look."""
        return type(self)(*(max(10, size // 100) for size in astuple(self)))


# For a quick look: so many seconds for each rate.
QUICK_SECONDS = 1.0

# The row of a namespace, as a worker that serves it would add it.
NAMESPACE = """
INSERT INTO progressor.namespaces (name, options) VALUES (%(name)s, '{}') ON CONFLICT DO NOTHING
"""

# Processes as their init left them, each with its finished init task.
_PROCESSES = """
WITH process AS (
    INSERT INTO progressor.processes (
        namespace_no, process_id, status, previous_status, status_changed_at, created_at, aux_state, birth
    )
    SELECT
        n.namespace_no,
        CASE WHEN %(uuids)s::boolean THEN md5(i.name)::uuid::text ELSE i.name END,
        'running', 'init', now(), now(), '{"n":0}'::bytea, (random() * 2 ^ 62)::bigint
    FROM
        progressor.namespaces AS n,
        (SELECT %(prefix)s::text || i AS name FROM generate_series(1, %(count)s::bigint) AS i) AS i
    WHERE n.name = %(namespace)s
    RETURNING process_no, process_id
)

INSERT INTO progressor.tasks (
    process_no, task_type, status, scheduled_time, running_time, finished_time,
    args, idempotency_key, request_hash, response, reply_to, worker_id, lease
)
SELECT
    process_no, 'init', 'finished', now(), now(), now(),
    '{}'::bytea, substr(md5(process_id), 1, 12), substr(sha256(process_id::bytea), 1, 12),
    '0'::bytea, 1, 1, (random() * 4e18)::bigint
FROM process
"""

# The timers of these processes.
_TIMERS = """
WITH task AS (
    INSERT INTO progressor.tasks (process_no, task_type, status, scheduled_time)
    SELECT
        p.process_no, 'timeout', 'waiting',
        now() + (%(first)s::float8 + (i.number - 1) * %(gap)s::float8) * interval '1 second'
    FROM (
        SELECT i AS number, %(prefix)s::text || i AS name FROM generate_series(1, %(count)s::bigint) AS i
    ) AS i
    JOIN progressor.processes AS p
        ON p.process_id = CASE WHEN %(uuids)s::boolean THEN md5(i.name)::uuid::text ELSE i.name END
    JOIN progressor.namespaces AS n USING (namespace_no)
    WHERE n.name = %(namespace)s
    ORDER BY i.number
    RETURNING process_no, task_id, task_type, scheduled_time
)

INSERT INTO progressor.schedule (
    process_no, task_id, namespace_no, task_type, scheduled_time, claimable
)
SELECT t.process_no, t.task_id, n.namespace_no, t.task_type, t.scheduled_time, TRUE
FROM task AS t, progressor.namespaces AS n
WHERE n.name = %(namespace)s
"""


def add_timers(run: Run, names: Names, count: int, *, first: float, gap: float = 0.0) -> None:
    """Add processes with timers; the first falls due after `first` seconds, each next one `gap` later."""
    add_processes(run, names, count)
    set_timers(run, names, count, first=first, gap=gap)


def set_timers(run: Run, names: Names, count: int, *, first: float, gap: float = 0.0) -> None:
    """Set the timers of processes that have none."""
    run(_TIMERS, **asdict(names), count=count, first=first, gap=gap)


def add_processes(run: Run, names: Names, count: int) -> None:
    """Add processes without timers and waiting requests."""
    run(NAMESPACE, name=names.namespace)
    run(_PROCESSES, **asdict(names), count=count)


def _add_waiting(count: int, run: Run) -> None:
    add_timers(run, Names(TIMERS, "waiting-"), count, first=FAR_AWAY)
    settle(run)


def loads(sizes: Sizes) -> dict[str, Load]:
    """Return what fills the databases of the big cases, by the kind of the database."""
    return {"waiting": partial(_add_waiting, sizes.waiting)}


def settle(run: Run) -> None:
    """Vacuum, analyze and checkpoint now, so that none of that falls into the measurement."""
    run("VACUUM (ANALYZE)")
    run("CHECKPOINT")
