-- Processes break in this transaction: cancel all that waits on them, and say whom to tell. It comes
-- before the statement that ends the steps, while their running rows, the fence, are still held.
WITH gone AS (
    DELETE FROM schedule AS s
    USING
        unnest(
            %(namespace)s::text[], %(process_id)s::text[], %(task_id)s::bigint[],
            %(worker_id)s::text[], %(lease)s::bigint[], %(detail)s::text[]
        ) AS i (namespace, process_id, task_id, worker_id, lease, detail)
    JOIN running AS r
        ON
            r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = ANY (ARRAY[i.process_id])
            AND r.task_id = i.task_id AND r.lease = i.lease
            AND r.worker_id IS NOT DISTINCT FROM i.worker_id
    WHERE s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = ANY (ARRAY[i.process_id])
    RETURNING s.namespace, s.process_id, s.task_id, i.detail
)

UPDATE tasks AS t
SET
    status = 'cancelled',
    finished_time = coalesce(%(now)s::timestamptz, now()),
    error = gone.detail
FROM gone
WHERE
    t.namespace = ANY (ARRAY[gone.namespace]) AND t.process_id = ANY (ARRAY[gone.process_id])
    AND t.task_id = gone.task_id
RETURNING t.namespace, t.process_id, t.task_id, t.metadata ->> 'reply_to' AS reply_to
