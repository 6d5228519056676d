-- collect_zombies, first: running tasks whose worker's heartbeat is too old (or gone), or that outlived
-- step_timeout + grace; their processes' rows are locked, those held by others left for the next time.
-- While PostgreSQL was down, or out of the collector's own reach, nobody could renew a heartbeat or save a
-- step: ages count from its start, and from when the collector saw it again.
SELECT
    r.namespace,
    r.process_id,
    r.task_id,
    r.worker_id,
    r.lease,
    coalesce(n.options ->> 'on_zombie', 'error') AS on_zombie,
    (n.options -> 'retry_policy' ->> 'max_attempts')::bigint AS max_attempts,
    t.attempts_count
FROM running AS r
JOIN processes AS p ON p.namespace = ANY (ARRAY[r.namespace])
AND p.process_id = ANY (ARRAY[r.process_id])
JOIN tasks AS t
    ON
        t.namespace = ANY (ARRAY[r.namespace]) AND t.process_id = ANY (ARRAY[r.process_id])
        AND t.task_id = r.task_id
LEFT JOIN workers AS w ON w.worker_id = r.worker_id
LEFT JOIN namespaces AS n ON n.name = r.namespace
WHERE
    -- Repeated after an outage it comes too late to know what happened meanwhile: the next round judges.
    clock_timestamp() <= coalesce(%(until)s::timestamptz, 'infinity')
    AND (
        greatest(w.seen_at, r.running_time, pg_postmaster_start_time(), %(sees_since)s::timestamptz)
        < coalesce(%(now)s::timestamptz, now()) - %(lease_age)s::interval
        OR greatest(r.running_time, pg_postmaster_start_time(), %(sees_since)s::timestamptz)
        + coalesce((n.options ->> 'step_timeout')::float8, 0) * interval '1 second'
        + %(grace)s::interval
        < coalesce(%(now)s::timestamptz, now())
    )
ORDER BY r.namespace, r.process_id
LIMIT %(limit)s::bigint
FOR NO KEY UPDATE OF p SKIP LOCKED
