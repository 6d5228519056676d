-- A process has at most one live timer, waiting or running.
-- Reads: schedule, running.
SELECT n.name AS namespace, p.process_id, t.task_id, format('%%s timers live', t.n) AS found
FROM (
    SELECT t.process_no, max(t.task_id) AS task_id, count(*) AS n
    FROM (
        SELECT s.process_no, s.task_id FROM progressor.schedule AS s
        WHERE s.task_type IN ('timeout', 'remove')
        UNION ALL
        SELECT r.process_no, r.task_id FROM progressor.running AS r
        WHERE r.task_type IN ('timeout', 'remove')
    ) AS t
    GROUP BY t.process_no
    HAVING count(*) > 1
) AS t
JOIN progressor.processes AS p ON p.process_no = t.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE %(namespace)s::text IS NULL OR n.name = %(namespace)s::text
