-- Every event was made by a task of its process that finished, unless its retention has deleted the task.
-- Reads: all events, all tasks.
SELECT
    n.name AS namespace, p.process_id, e.task_id,
    format('event %%s is of a task that is %%s', e.event_id, coalesce(t.status::text, 'not there')) AS found
FROM progressor.events AS e
JOIN progressor.processes AS p ON p.process_no = e.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.tasks AS t ON t.process_no = e.process_no AND t.task_id = e.task_id
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND t.status IS DISTINCT FROM 'finished'
    AND (t.status IS NOT NULL OR coalesce(e.task_id > p.swept_until, TRUE))
