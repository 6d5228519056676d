-- Delete processes and all their rows, and say whom to tell. With a task_id it is the end of that step,
-- if its running row, the fence, is still held: that row and the task's stay for save_result, which comes
-- next, and the task's then stays, orphaned, for the caller's answer. So do the answers of the last day:
-- a caller may not have read its own yet, and a start asked again must not begin a second life. Without a
-- task_id somebody wants the process forgotten, keys and all.
WITH item AS MATERIALIZED (
    SELECT i.*
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(task_id)s::bigint[],
        %(worker_id)s::text[], %(lease)s::bigint[]
    ) WITH ORDINALITY AS i (namespace, process_id, task_id, worker_id, lease, ord)
    WHERE
        (
            i.task_id IS NULL
            -- Not what was started after the lock had looked for it.
            AND i.ord <> ALL (
                coalesce(nullif(current_setting('progressor.missing', TRUE), ''), '{}')::bigint[]
            )
        )
        OR EXISTS (
            SELECT FROM running AS r
            WHERE
                r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = ANY (ARRAY[i.process_id])
                AND r.task_id = i.task_id AND r.lease = i.lease
                AND r.worker_id IS NOT DISTINCT FROM i.worker_id
        )
),

process AS (
    DELETE FROM processes AS p
    USING item AS i
    WHERE p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = ANY (ARRAY[i.process_id])
),

event AS (
    DELETE FROM events AS e
    USING item AS i
    WHERE e.namespace = ANY (ARRAY[i.namespace]) AND e.process_id = ANY (ARRAY[i.process_id])
),

waiting AS (
    DELETE FROM schedule AS s
    USING item AS i
    WHERE s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = ANY (ARRAY[i.process_id])
),

step AS (
    DELETE FROM running AS r
    USING item AS i
    WHERE
        i.task_id IS NULL AND r.namespace = ANY (ARRAY[i.namespace])
        AND r.process_id = ANY (ARRAY[i.process_id])
),

answer AS (
    UPDATE tasks AS t
    SET orphaned = TRUE
    FROM item AS i
    WHERE
        t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
        AND (
            t.task_id = i.task_id
            OR (
                i.task_id IS NOT NULL AND t.idempotency_key <> ''
                AND t.finished_time >= coalesce(%(now)s::timestamptz, now()) - interval '1 day'
            )
        )
)

DELETE FROM tasks AS t
USING item AS i
WHERE
    t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
    AND t.task_id IS DISTINCT FROM i.task_id AND NOT t.orphaned
    AND (
        i.task_id IS NULL OR t.idempotency_key IS NULL OR t.finished_time IS NULL
        OR t.finished_time < coalesce(%(now)s::timestamptz, now()) - interval '1 day'
    )
RETURNING
    t.namespace, t.process_id, t.task_id,
    CASE WHEN t.status IN ('waiting', 'running') THEN t.metadata ->> 'reply_to' END AS reply_to
