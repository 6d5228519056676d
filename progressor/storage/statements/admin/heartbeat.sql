-- Make or renew the row of a process. The count that is returned shows the process whether its last renewal
-- is still there; the time is that of the row, after any wait for its lock. The server is told by when it was
-- started, and by its database: after a restart, a fail-over or the restore of a server it is another one.
INSERT INTO progressor.workers (
    worker_id, host, namespaces, step_timeouts, lease_age, free_slots, steps, functions, seen_at
)
VALUES (
    %(worker_id)s::bigint, %(host)s::text, %(namespaces)s::text[],
    ARRAY(
        SELECT u.step_timeout * interval '1 microsecond'
        FROM unnest(%(step_timeouts)s::bigint[]) WITH ORDINALITY AS u (step_timeout, ord)
        ORDER BY u.ord
    ),
    %(lease_age)s::interval, %(free_slots)s::text::jsonb, %(steps)s::text::jsonb,
    %(functions)s::text::jsonb, clock_timestamp()
)
ON CONFLICT (worker_id) DO UPDATE
SET
    free_slots = excluded.free_slots, steps = excluded.steps, step_timeouts = excluded.step_timeouts,
    beats = workers.beats + 1, seen_at = clock_timestamp()
RETURNING
    beats,
    seen_at,
    (
        SELECT concat((date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint, '/', d.oid)
        FROM pg_catalog.pg_database AS d
        WHERE d.datname = current_database()
    ) AS server
