"""Rows by the million: big tables, stored processes, long mailboxes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from progressor.bench import rows
from progressor.bench.flows import CHAIN, Names
from progressor.bench.rows import FAR_AWAY, NAMESPACE, Load, Run, add_processes, set_timers, settle


@dataclass(frozen=True, slots=True)
class Sizes(rows.Sizes):
    """The sizes of the big cases, with those of `progressor bench`."""

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
    jittered: int = 1_000_000
    """Recurring timers of one nominal time."""
    held: int = 1_000_000
    """Requests that wait for room in full groups."""


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


def add_stored(run: Run, names: Names, count: int) -> None:
    """Add processes whose timers wait for a far day, and switch autovacuum off."""
    unattended(run)
    add_processes(run, names, count)
    # Before the small rows, so that these fill the rest of the pages, as they do when both kinds come all
    # the time. Otherwise the measured rows fill them, each with a full page in the WAL.
    settle(run)
    set_timers(run, names, count, first=FAR_AWAY)
    settle(run)


def add_mailbox(
    run: Run, names: Names, process_id: str, count: int, *, kind: Literal["call", "notify"], name: str
) -> None:
    """Add so many calls or notifies of this name to a process; a step of it must run meanwhile."""
    run(_MAILBOX, namespace=names.namespace, process_id=process_id, count=count, kind=kind, name=name)


def unattended(run: Run) -> None:
    """Switch autovacuum off on all tables."""
    run(_UNATTENDED)


def loads(sizes: Sizes) -> dict[str, Load]:
    """Return what fills the databases of the big cases, by the kind of the database."""
    return {**rows.loads(sizes), "aged": partial(_add_aged, sizes.rows)}


def _add_aged(count: int, run: Run) -> None:
    run(NAMESPACE, name=CHAIN)
    run(_AGED_PROCESSES, namespace=CHAIN, rows=count)
    run(_AGED_TASKS)
    run(_AGED_EVENTS)
    settle(run)
