-- Every event was made by a task of its process that finished.
-- Reads: all events, all tasks.
SELECT
    e.namespace, e.process_id, e.task_id,
    format('event %%s is of a task that is %%s', e.event_id, coalesce(t.status, 'not there')) AS found
FROM events AS e
LEFT JOIN tasks AS t
    ON t.namespace = e.namespace AND t.process_id = e.process_id AND t.task_id = e.task_id
WHERE
    (%(namespace)s::text IS NULL OR e.namespace = %(namespace)s::text)
    AND (t.status IS DISTINCT FROM 'finished' OR t.orphaned)
