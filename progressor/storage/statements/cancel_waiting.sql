-- A process broke in this transaction: cancel all that waits on it, and say whom to tell.
WITH gone AS (
    DELETE FROM schedule AS s
    USING
        unnest(%(namespace)s::text[], %(process_id)s::text[], %(task_id)s::bigint[])
        AS i (namespace, process_id, task_id)
    JOIN processes AS p
        ON
            p.namespace = i.namespace AND p.process_id = i.process_id
            AND p.status = 'error' AND p.corrupted_by = i.task_id
    WHERE s.namespace = i.namespace AND s.process_id = i.process_id
    RETURNING s.namespace, s.process_id, s.task_id, p.detail
)

UPDATE tasks AS t
SET
    status = 'cancelled',
    finished_time = coalesce(%(now)s::timestamptz, now()),
    error = gone.detail
FROM gone
WHERE t.namespace = gone.namespace AND t.process_id = gone.process_id AND t.task_id = gone.task_id
RETURNING t.namespace, t.process_id, t.task_id, t.metadata ->> 'reply_to' AS reply_to
