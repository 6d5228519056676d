-- Every waiting task has its row in schedule, every running one its row in running.
-- Reads: all tasks.
SELECT
    t.namespace, t.process_id, t.task_id,
    format('a %%s task that no worker will ever see', t.status) AS found
FROM tasks AS t
LEFT JOIN schedule AS s
    ON s.namespace = t.namespace AND s.process_id = t.process_id AND s.task_id = t.task_id
LEFT JOIN running AS r
    ON r.namespace = t.namespace AND r.process_id = t.process_id AND r.task_id = t.task_id
WHERE
    (%(namespace)s::text IS NULL OR t.namespace = %(namespace)s::text)
    AND t.status IN ('waiting', 'running')
    AND CASE WHEN t.status = 'waiting' THEN s.task_id IS NULL ELSE r.task_id IS NULL END
