-- At most one task runs on a process.
-- Reads: running.
SELECT
    r.namespace, r.process_id, min(r.task_id) AS task_id,
    format('%%s tasks run', count(*)) AS found
FROM running AS r
WHERE %(namespace)s::text IS NULL OR r.namespace = %(namespace)s::text
GROUP BY r.namespace, r.process_id
HAVING count(*) > 1
