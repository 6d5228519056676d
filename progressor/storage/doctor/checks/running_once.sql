-- At most one task runs on a process.
-- Reads: running.
SELECT n.name AS namespace, p.process_id, r.task_id, format('%%s tasks run', r.n) AS found
FROM (
    SELECT r.process_no, min(r.task_id) AS task_id, count(*) AS n
    FROM progressor.running AS r
    GROUP BY r.process_no
    HAVING count(*) > 1
) AS r
JOIN progressor.processes AS p ON p.process_no = r.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE %(namespace)s::text IS NULL OR n.name = %(namespace)s::text
