"""Rows by the million, written by PostgreSQL itself, because a worker would need hours for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from progressor.bench.flows import CHAIN, TIMERS, Names

Run = Callable[..., list[dict[str, Any]]]

_FAR_AWAY = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the big cases."""

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
    stored: int = 200_000
    """Processes with long names; those with short ones are a hundredth."""
    window: int = 10_000
    """Steps of a window, in cases where the bytes that a step writes depend on the steps before."""
    mailbox: int = 100_000
    """The longest mailbox."""
    crowd: int = 10_000
    """Requests of one client at once."""

    def divided(self, by: int) -> Sizes:
        """Return smaller sizes, for a quick look."""
        return Sizes(*(max(10, getattr(self, name) // by) for name in self.__slots__))


# For a quick look: a hundredth of all sizes, and so many seconds for each rate.
QUICK = Sizes().divided(100)
QUICK_SECONDS = 1.0

# The row of a namespace, as a worker that serves it would add it.
_NAMESPACE = """
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

# Requests that wait behind the running step of one process.
_MAILBOX = """
WITH task AS (
    INSERT INTO progressor.tasks (
        process_no, task_type, status, scheduled_time, name, args, idempotency_key, request_hash, lease
    )
    SELECT
        p.process_no, %(kind)s::progressor.task_type, 'waiting', now(), %(name)s, '{}'::bytea,
        substr(md5(i::text), 1, 12), substr(sha256(i::text::bytea), 1, 12), (random() * 4e18)::bigint
    FROM progressor.namespaces AS n
    JOIN progressor.processes AS p USING (namespace_no)
    CROSS JOIN generate_series(1, %(count)s::bigint) AS i
    WHERE n.name = %(namespace)s AND p.process_id = %(process_id)s
    ORDER BY i
    RETURNING process_no, task_id, task_type, scheduled_time
)

INSERT INTO progressor.schedule (
    process_no, task_id, namespace_no, task_type, scheduled_time, claimable
)
SELECT t.process_no, t.task_id, n.namespace_no, t.task_type, t.scheduled_time, FALSE
FROM task AS t, progressor.namespaces AS n
WHERE n.name = %(namespace)s
"""

# Without autovacuum: figures must not depend on the moment at which it runs.
_UNATTENDED = """
DO $$
DECLARE one regclass;
BEGIN
    FOR one IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'progressor'::regnamespace
    LOOP
        EXECUTE 'ALTER TABLE ' || one || ' SET (autovacuum_enabled = off)';
    END LOOP;
END
$$
"""

# Ids are spread over the whole key space, like those of real processes. The rows of a process lie side by
# side, because they are written at once.
_AGED_PROCESSES = """
INSERT INTO progressor.processes (
    namespace_no, process_id, status, status_changed_at, created_at, aux_state, last_event_id
)
SELECT n.namespace_no, md5(p::text), 'running', now(), now(), '{"n":100}'::bytea, 100
FROM progressor.namespaces AS n, generate_series(1, %(rows)s::bigint / 100) AS p
WHERE n.name = %(namespace)s
"""

_AGED_TASKS = """
INSERT INTO progressor.tasks (
    process_no, task_type, status, scheduled_time, running_time, finished_time, response
)
SELECT p.process_no, 'timeout', 'finished', now(), now(), now(), 'null'::bytea
FROM progressor.processes AS p, generate_series(1, 100) AS t
ORDER BY p.process_no
"""

_AGED_EVENTS = """
INSERT INTO progressor.events (process_no, event_id, task_id, timestamp, metadata, payload)
SELECT
    p.process_no, e, e, now(), '{"name": "step"}'::jsonb,
    convert_to('{"pad":"' || repeat('x', 54) || '"}', 'UTF8')
FROM progressor.processes AS p, generate_series(1, 100) AS e
ORDER BY p.process_no, e
"""


def add_timers(run: Run, names: Names, count: int, *, first: float, gap: float = 0.0) -> None:
    """Add processes with timers; the first falls due after `first` seconds, each next one `gap` later."""
    add_processes(run, names, count)
    run(_TIMERS, **asdict(names), count=count, first=first, gap=gap)


def add_processes(run: Run, names: Names, count: int) -> None:
    """Add processes without timers and waiting requests."""
    run(_NAMESPACE, name=names.namespace)
    run(_PROCESSES, **asdict(names), count=count)


def add_stored(run: Run, names: Names, count: int) -> None:
    """Add processes whose timers wait for a far day, and switch autovacuum off."""
    unattended(run)
    add_processes(run, names, count)
    # Before the small rows, so that these fill the rest of the pages, as they do when both kinds come all
    # the time. Otherwise the measured rows fill them, each with a full page in the WAL.
    settle(run)
    run(_TIMERS, **asdict(names), count=count, first=_FAR_AWAY, gap=0.0)
    settle(run)


def add_mailbox(
    run: Run, names: Names, process_id: str, count: int, *, kind: Literal["call", "notify"], name: str
) -> None:
    """Add so many calls or notifies of this name to a process; a step of it must run meanwhile."""
    run(_MAILBOX, namespace=names.namespace, process_id=process_id, count=count, kind=kind, name=name)


def unattended(run: Run) -> None:
    """Switch autovacuum off on all tables."""
    run(_UNATTENDED)


def _waiting(run: Run, sizes: Sizes) -> None:
    add_timers(run, Names(TIMERS, "waiting-"), sizes.waiting, first=_FAR_AWAY)
    settle(run)


def _aged(run: Run, sizes: Sizes) -> None:
    run(_NAMESPACE, name=CHAIN)
    run(_AGED_PROCESSES, namespace=CHAIN, rows=sizes.rows)
    run(_AGED_TASKS)
    run(_AGED_EVENTS)
    settle(run)


def settle(run: Run) -> None:
    """Vacuum, analyze and checkpoint now, so that none of that falls into the measurement."""
    run("VACUUM (ANALYZE)")
    run("CHECKPOINT")


LOADS: dict[str, Callable[[Run, Sizes], None]] = {"waiting": _waiting, "aged": _aged}
