-- Every waiting request is younger than the task (request or timer) that runs on its process.
-- Reads: schedule, running.
-- The end of a step looks for the next request behind its own task, and would never find an older one.
SELECT
    n.name AS namespace, p.process_id, s.task_id,
    format('it waits, while task %%s, made later, runs', r.task_id) AS found
FROM progressor.running AS r
JOIN progressor.schedule AS s ON s.process_no = r.process_no AND s.task_id < r.task_id
JOIN progressor.processes AS p ON p.process_no = r.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND s.task_type NOT IN ('timeout', 'remove')
