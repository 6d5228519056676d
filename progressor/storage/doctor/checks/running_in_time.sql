-- No task runs for longer than the step_timeout of its worker, the grace, and the time that a collector needs.
-- Reads: running, workers.
-- As the collector sees it: while PostgreSQL was down nobody could save a step.
SELECT
    n.name AS namespace, p.process_id, r.task_id, format('runs since %%s', r.running_time) AS found
FROM progressor.running AS r
JOIN progressor.processes AS p ON p.process_no = r.process_no
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
JOIN progressor.workers AS w ON w.worker_id = r.worker_id
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND greatest(r.running_time, pg_postmaster_start_time())
    + w.step_timeouts[array_position(w.namespaces, n.name)]
    + %(grace)s::interval + %(slack)s::interval
    < coalesce(%(now)s::timestamptz, now())
