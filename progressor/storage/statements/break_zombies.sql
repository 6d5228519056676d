-- collect_zombies, under on_zombie = error: the task ends in error and breaks its process. The lease
-- goes off the task: whoever held it saved nothing.
WITH zombie AS (
    DELETE FROM running AS r
    USING unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(task_id)s::bigint[], %(lease)s::bigint[]
    ) AS i (namespace, process_id, task_id, lease)
    WHERE
        r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = ANY (ARRAY[i.process_id])
        AND r.task_id = i.task_id AND r.lease = i.lease
    RETURNING r.namespace, r.process_id, r.task_id
),

process AS (
    UPDATE processes AS p
    SET
        status = 'error',
        previous_status = CASE WHEN p.status = 'error' THEN p.previous_status ELSE p.status END,
        status_changed_at = CASE
            WHEN p.status = 'error' THEN p.status_changed_at
            ELSE coalesce(%(now)s::timestamptz, now())
        END,
        -- A lost repair leaves the reason why the process broke.
        detail = CASE WHEN p.status = 'error' THEN p.detail ELSE 'zombie detected' END,
        corrupted_by = CASE WHEN p.status = 'error' THEN p.corrupted_by ELSE z.task_id END
    FROM zombie AS z
    WHERE p.namespace = ANY (ARRAY[z.namespace]) AND p.process_id = ANY (ARRAY[z.process_id])
    RETURNING p.namespace, p.process_id, z.task_id
)

UPDATE tasks AS t
SET
    status = 'error', finished_time = coalesce(%(now)s::timestamptz, now()),
    error = 'zombie detected', lease = NULL
FROM process AS z
WHERE
    t.namespace = ANY (ARRAY[z.namespace]) AND t.process_id = ANY (ARRAY[z.process_id])
    AND t.task_id = z.task_id
RETURNING t.namespace, t.process_id, t.task_id, t.task_type, t.metadata ->> 'reply_to' AS reply_to
