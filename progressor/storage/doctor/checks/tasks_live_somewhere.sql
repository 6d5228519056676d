-- Every waiting task has its row in schedule, every running one its row in running.
-- Reads: all tasks.
SELECT
    n.name AS namespace, p.process_id, t.task_id,
    format('a %%s task that no worker will ever see', t.status) AS found
FROM progressor.tasks AS t
JOIN progressor.processes AS p ON p.process_no = t.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.schedule AS s ON s.process_no = t.process_no AND s.task_id = t.task_id
LEFT JOIN progressor.running AS r ON r.process_no = t.process_no AND r.task_id = t.task_id
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND t.status IN ('waiting', 'running')
    AND CASE WHEN t.status = 'waiting' THEN s.task_id IS NULL ELSE r.task_id IS NULL END
