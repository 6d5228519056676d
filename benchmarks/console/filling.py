"""A large database for the console, written by PostgreSQL itself: most of it is of one namespace.

Of twenty processes one is broken, of ten one has the metadata `plan=pro` and none of these is broken, of
two one has a timer. Mailboxes, groups, bulks, an audit, workers, schedules and parked entries stand beside.
"""

from __future__ import annotations

from typing import NamedTuple

import psycopg

LARGEST, SMALL, GROUPED = "shop.orders", "team.1", "mail.outgoing"
LONG, DEEP = "o-2", "o-102"
"""The processes with the longest history and with the deepest mailbox, of the largest namespace."""

NAMESPACES = 40


class Sizes(NamedTuple):
    """The sizes of a database; of each process there are so many tasks, and as many events."""

    processes: int
    tasks: int = 10

    @property
    def deep(self) -> int:
        """The requests of the deepest mailbox, and the events of the longest history."""
        return max(100, self.processes // 20)


_STEPS = {
    "namespaces": """
INSERT INTO namespaces (name, options, schemas)
SELECT
    CASE n
        WHEN 1 THEN 'shop.orders' WHEN 2 THEN 'shop.carts' WHEN 3 THEN 'mail.outgoing'
        WHEN 4 THEN 'progressor.schedules' ELSE 'team.' || n - 4
    END,
    CASE n WHEN 3 THEN '{"concurrency": 100, "group_limit": 2}' ELSE '{"concurrency": 100}' END::jsonb,
    '{"calls": {"pay": {"args": {"type": "object", "properties": {"amount": {"type": "integer"}}}}}}'
FROM generate_series(1, %(namespaces)s) AS n
ORDER BY n
""",
    # Of a hundred processes 90 are of the first namespace, 5 of the second, 3 of the third, 2 of others.
    "processes": """
INSERT INTO processes (
    process_no, created_at, namespace_no, status, status_changed_at, previous_status, process_id, metadata,
    corrupted_by, detail, last_event_id, aux_state, birth, group_no
)
OVERRIDING SYSTEM VALUE
SELECT
    n,
    now() - interval '1 minute' * (%(processes)s - n) * 130000 / %(processes)s,
    CASE
        WHEN place < 90 THEN 1 WHEN place < 95 THEN 2 WHEN place < 98 THEN 3
        ELSE 5 + n / 100 %% (%(namespaces)s - 4)
    END,
    CASE WHEN n %% 20 = 0 THEN 'error' WHEN n %% 50021 = 1 THEN 'init' ELSE 'running' END::process_status,
    now() - interval '1 second' * (n %% 90000),
    CASE WHEN n %% 20 = 0 THEN 'running'::process_status END,
    'o-' || n,
    CASE
        WHEN n %% 10 = 3
            THEN jsonb_build_object('plan', 'pro', 'customer', 'c' || n, 'region', n %% 4 || '')
        WHEN n %% 1000 = 4 THEN jsonb_build_object('plan', 'gold', 'customer', 'c' || n)
        WHEN n %% 5 = 0 THEN '{}'
        ELSE jsonb_build_object('customer', 'c' || n, 'region', n %% 4 || '')
    END,
    CASE WHEN n %% 20 = 0 THEN 100 * n + %(tasks)s - 1 END,
    CASE
        WHEN n %% 20 <> 0 THEN NULL
        WHEN n %% 60 = 0 THEN 'HTTPError: 503 for https://pay.example/v2/charges/' || md5(n || '')
            || ': upstream connect error, reset reason: connection timeout after ' || n %% 977 || ' ms'
        WHEN n %% 140 = 0 THEN 'KeyError: ''sku-' || n || ''''
        WHEN n %% 220 = 0 THEN 'ValueError: the amount ' || n %% 97 || '.50 of order '
            || gen_random_uuid() || ' is not in EUR' || repeat(' and neither is that of its parts', 60)
        WHEN n %% 380 = 0 THEN 'TimeoutError: step ' || n %% 17 || ' of "import ' || n || '" took too long'
        ELSE 'AssertionError: stock of item ' || n %% 5000 || ' is negative (-' || n %% 13 || '); shelf 0x'
            || to_hex(n)
    END,
    CASE n WHEN 2 THEN %(deep)s ELSE %(tasks)s END,
    convert_to('{"item": "tea", "number": ' || n || ', "lines": "' || repeat('x', 300) || '"}', 'UTF8'),
    n,
    CASE WHEN place IN (95, 96, 97) THEN 1 + n / 100 %% 200 END
FROM generate_series(1, %(processes)s) AS n, LATERAL (SELECT (n + n / 20) %% 100) AS of (place)
""",
    "tasks": """
INSERT INTO tasks (
    process_no, task_id, task_type, status, scheduled_time, running_time, finished_time, name, args,
    response, error, idempotency_key, request_hash, worker_id, lease
)
SELECT
    n, 100 * n + i,
    CASE i WHEN 0 THEN 'init' ELSE 'call' END::task_type,
    CASE WHEN failed THEN 'error' ELSE 'finished' END::task_status,
    at, at, at,
    CASE WHEN i > 0 THEN CASE n %% 3 WHEN 0 THEN 'pay' ELSE 'ship' END END,
    '{"amount": 5}', CASE WHEN NOT failed THEN '"done"'::bytea END, CASE WHEN failed THEN 'it failed' END,
    n || '-' || i, '\\x00', 1, n
FROM
    generate_series(1, %(processes)s) AS n,
    generate_series(0, %(tasks)s - 1) AS i,
    LATERAL (SELECT n %% 20 = 0 AND i = %(tasks)s - 1, now() - interval '90 days') AS of (failed, at)
""",
    "events": """
INSERT INTO events (process_no, event_id, task_id, timestamp, metadata, payload)
SELECT
    n, i, 100 * n + i - 1, now(), '{"name": "paid"}',
    '{"amount": 5, "note": "0123456789 0123456789 0123456789"}'
FROM generate_series(1, %(processes)s) AS n, generate_series(1, %(tasks)s) AS i
""",
    "the longest history": """
WITH task AS (
    INSERT INTO tasks (process_no, task_id, task_type, status, scheduled_time, finished_time, name, args)
    SELECT 2, 100 * %(processes)s + 1000 + i, 'notify', 'finished', now(), now(), 'note', '{"text": "long"}'
    FROM generate_series(%(tasks)s + 1, %(deep)s) AS i
)

INSERT INTO events (process_no, event_id, task_id, timestamp, metadata, payload)
SELECT 2, i, 100 * %(processes)s + 1000 + i, now(), '{"name": "noted"}', '{"text": "long"}'
FROM generate_series(%(tasks)s + 1, %(deep)s) AS i
""",
    # Of two processes one has a timer; few are due; those of broken ones are held.
    "timers": """
WITH task AS (
    INSERT INTO tasks (
        process_no, task_id, task_type, status, scheduled_time, attempts_count, running_time, error
    )
    SELECT
        n, 100 * n + 50, 'timeout', 'waiting',
        now() + interval '1 day' * CASE n %% 50 WHEN 2 THEN -1 ELSE 1 + n %% 30 END,
        CASE n %% 500 WHEN 2 THEN 3 END, CASE n %% 500 WHEN 2 THEN now() END,
        CASE n %% 500 WHEN 2 THEN 'ConnectionError: no route to ' || n END
    FROM generate_series(2, %(processes)s, 2) AS n
    WHERE n <> 102
    RETURNING process_no, task_id, task_type, scheduled_time
)

INSERT INTO schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
SELECT t.process_no, t.task_id, p.namespace_no, t.task_type, t.scheduled_time, p.status <> 'error'
FROM task AS t JOIN processes AS p USING (process_no)
""",
    # One mailbox is deep, a hundred are less, and a thousand shallow.
    "mailboxes": """
WITH task AS (
    INSERT INTO tasks (
        process_no, task_id, task_type, status, scheduled_time, name, args, idempotency_key, request_hash
    )
    SELECT
        n, 101 * %(processes)s::bigint + n + i::bigint * 100000, 'call', 'waiting',
        now() - interval '1 hour', 'pay', '{}', 'waits-' || n || '-' || i, '\\x00'
    FROM
        generate_series(102, 10102, 10) AS n,
        generate_series(1, CASE WHEN n = 102 THEN %(deep)s WHEN n < 1102 THEN 50 ELSE 2 END) AS i
    WHERE n <= %(processes)s AND n %% 20 <> 0
    RETURNING process_no, task_id, task_type, scheduled_time
)

INSERT INTO schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
SELECT
    t.process_no, t.task_id, p.namespace_no, t.task_type, t.scheduled_time,
    t.process_no <> 102 AND t.task_id = min(t.task_id) OVER (PARTITION BY t.process_no)
FROM task AS t JOIN processes AS p USING (process_no)
""",
    "running": """
INSERT INTO running (process_no, worker_id, task_id, lease, running_time, task_type)
SELECT 102 + n * 100, 1, 1, 1, now(), 'call' FROM generate_series(0, 200) AS n
""",
    "groups": """
INSERT INTO groups (namespace_no, group_key) SELECT 3, 'customer-' || n FROM generate_series(1, 200) AS n
""",
    "workers": """
INSERT INTO workers (worker_id, host, namespaces, step_timeouts, lease_age, seen_at, free_slots, steps)
SELECT
    n, 'host-' || n, names, array_fill(interval '1 minute', ARRAY[cardinality(names)]),
    interval '1 day', now() - interval '1 day' * CASE WHEN n > 25 THEN 2 ELSE 0 END, '{}',
    '{"shop.orders": 900}'
FROM generate_series(1, 30) AS n, (SELECT array_agg(name) AS names FROM namespaces) AS known
""",
    "samples": """
INSERT INTO samples (namespace_no, sampled_at, broken, waiting, timers, running, steps, slots, age)
SELECT namespace_no, now() - interval '1 minute' * m, m, m, m, m, m, 100, interval '1 second'
FROM namespaces, generate_series(0, 1439) AS m
""",
    "audit": """
INSERT INTO audit (
    act_id, acted_at, verb, namespace, process_id, actor, way, origin, reason, role, address, application
)
SELECT
    n, now() - interval '1 minute' * n, CASE n %% 50 WHEN 0 THEN 'pause' ELSE 'simple_repair' END,
    CASE n %% 10 WHEN 0 THEN 'team.' || n / 10 %% 30 ELSE 'shop.orders' END, 'o-' || n, 'anna', 'console',
    '10.0.0.1', 'because', 'progressor', '10.0.0.1', 'progressor'
FROM generate_series(1, %(processes)s / 4) AS n
""",
    "bulks": """
INSERT INTO bulks (
    created_at, until_task, namespace, simple, request_hash, idempotency_key, bulk_hash, pace, status,
    ended_at, paced_at, next_at, still_since, begun, looked_at
)
SELECT
    now() - interval '1 minute', 1000 * %(processes)s::bigint, 'shop.orders', TRUE, '', 'bulk-' || n, '',
    interval '20 ms', CASE WHEN n > 999 THEN 'running' ELSE 'finished' END,
    CASE WHEN n <= 999 THEN now() END, now(), now() + interval '1 year', now(), 900, 1000
FROM generate_series(1, 1000) AS n
""",
    "parked": """
INSERT INTO subscriptions (name, slices) SELECT 'sink-' || n, 4 FROM generate_series(1, 5) AS n;
INSERT INTO subscription_slices (name, slice, position, item, n, mark, epoch)
SELECT 'sink-' || n, slice, 0, 0, 0, 0, 0 FROM generate_series(1, 5) AS n, generate_series(0, 3) AS slice;
INSERT INTO parked (
    name, slice, process_no, namespace, process_id, kind, n, timestamp, position, attempts, error
)
SELECT 'sink-1', n %% 4, n, 'shop.orders', 'o-' || n, 'e', 1, now(), n || '', 5, 'RuntimeError: refused'
FROM generate_series(1, %(processes)s / 20) AS n;
INSERT INTO feed (
    position, appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids,
    event_counts
)
SELECT n, now(), 'shop.orders', 's', ARRAY[n], ARRAY['o-' || n], ARRAY[100 * n], ARRAY[1], ARRAY[1]
FROM generate_series(1, %(processes)s / 10) AS n
""",
    "schedules": """
INSERT INTO processes (
    process_no, created_at, namespace_no, status, status_changed_at, process_id, aux_state
)
OVERRIDING SYSTEM VALUE
SELECT
    %(processes)s + 1000 + n, now(), 4, 'running', now(), 'team.' || 1 + n %% 30 || '/nightly-' || n, NULL
FROM generate_series(1, 300) AS n
""",
    "numbers": """
SELECT
    setval('tasks_task_id_seq', 10000 * %(processes)s::bigint + 100000000),
    setval('processes_process_no_seq', 10 * %(processes)s + 100000)
""",
}


def fill(dsn: str, sizes: Sizes) -> None:
    """Fill a migrated database, and look at it as autovacuum would; say how far it is."""
    params = {**sizes._asdict(), "deep": sizes.deep, "namespaces": NAMESPACES}
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SET search_path = progressor")
        connection.execute("SET synchronous_commit = off")
        for name, statement in _STEPS.items():
            print(f"{name} …", flush=True)
            connection.execute(statement.encode(), params)
        print("VACUUM …", flush=True)
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
