-- No task is held by a worker that is dead for longer than a collector needs to find it.
-- Reads: running, workers.
-- As the collector sees it: while PostgreSQL was down nobody could renew a heartbeat.
SELECT
    r.namespace, r.process_id, r.task_id,
    format(
        'worker %%s was last seen at %%s',
        r.worker_id, coalesce(w.seen_at::text, 'no time: it has no row')
    ) AS found
FROM running AS r
LEFT JOIN workers AS w ON w.worker_id = r.worker_id
WHERE
    (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s::text)
    AND greatest(w.seen_at, pg_postmaster_start_time(), r.running_time)
    < coalesce(%(now)s::timestamptz, now()) - %(lease_age)s::interval - %(slack)s::interval
