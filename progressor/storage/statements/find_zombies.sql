-- collect_zombies, first: running tasks whose worker's heartbeat is too old (or gone), or that outlived
-- step_timeout + grace; their processes' rows are locked, those held by others left for the next time.
-- While PostgreSQL was down, or out of the collector's own reach, nobody could renew a heartbeat or save a
-- step: ages count from its start, and from when the collector saw it again.
SELECT
    n.name AS namespace,
    p.process_id,
    r.process_no,
    r.task_id,
    r.task_type,
    r.worker_id,
    r.lease,
    n.options -> 'on_zombie' AS on_zombie,
    n.options -> 'zombie_attempts' AS zombie_attempts,
    n.options -> 'retry_policy' AS retry_policy,
    t.attempts_count,
    t.last_retry_interval,
    t.zombie_count
FROM progressor.running AS r
JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[r.process_no])
JOIN progressor.tasks AS t ON t.process_no = ANY (ARRAY[r.process_no]) AND t.task_id = r.task_id
JOIN progressor.namespaces AS n ON n.namespace_no = ANY (ARRAY[p.namespace_no])
LEFT JOIN progressor.workers AS w ON w.worker_id = ANY (ARRAY[r.worker_id])
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
-- No plain column: the planner shall not think of reading the index in its order.
ORDER BY r.process_no + 0
LIMIT %(limit)s::bigint
FOR NO KEY UPDATE OF p SKIP LOCKED
