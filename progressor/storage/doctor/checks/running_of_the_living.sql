-- No task is held by a worker that has been dead for longer than a collector needs to find it.
-- Reads: running, workers.
-- As the collector sees it: while PostgreSQL was down nobody could renew a heartbeat.
SELECT
    n.name AS namespace, p.process_id, r.task_id,
    format(
        'worker %%s was last seen at %%s',
        lpad(to_hex(r.worker_id), 16, '0'), coalesce(w.seen_at::text, 'no time: it has no row')
    ) AS found
FROM progressor.running AS r
JOIN progressor.processes AS p ON p.process_no = r.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.workers AS w ON w.worker_id = r.worker_id
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND greatest(w.seen_at, pg_postmaster_start_time(), r.running_time)
    < coalesce(%(now)s::timestamptz, now()) - greatest(w.lease_age, %(lease_age)s::interval)
    - %(slack)s::interval
