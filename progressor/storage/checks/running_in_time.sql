-- No task runs for longer than its namespace's step_timeout, the grace, and what a collector needs.
-- Reads: running, namespaces.
-- As the collector sees it: while PostgreSQL was down nobody could save a step.
SELECT
    r.namespace, r.process_id, r.task_id, format('runs since %%s', r.running_time) AS found
FROM running AS r
JOIN namespaces AS n ON n.name = r.namespace
WHERE
    (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s::text)
    AND greatest(r.running_time, pg_postmaster_start_time())
    + coalesce((n.options ->> 'step_timeout')::float8, 0) * interval '1 second'
    + %(grace)s::interval + %(slack)s::interval
    < coalesce(%(now)s::timestamptz, now())
