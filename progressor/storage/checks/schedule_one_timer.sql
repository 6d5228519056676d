-- A process has at most one live timer, waiting or running.
-- Reads: schedule, running.
SELECT
    t.namespace, t.process_id, max(t.task_id) AS task_id,
    format('%%s timers live', count(*)) AS found
FROM (
    SELECT s.namespace, s.process_id, s.task_id FROM schedule AS s
    WHERE s.task_type IN ('timeout', 'remove')
    UNION ALL
    SELECT r.namespace, r.process_id, r.task_id FROM running AS r
    WHERE r.task_type IN ('timeout', 'remove')
) AS t
WHERE %(namespace)s::text IS NULL OR t.namespace = %(namespace)s::text
GROUP BY t.namespace, t.process_id
HAVING count(*) > 1
