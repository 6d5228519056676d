-- simple_repair, after the lock: back to running without a handler. If a timer broke the process, a
-- fresh one of its type is due now.
WITH item AS MATERIALIZED (
    SELECT
        nextval('tasks_task_id_seq') AS task_id,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
        broken_by.task_type AS timer_type,
        CASE WHEN broken_by.task_type IS NOT NULL THEN nextval('tasks_task_id_seq') END AS timer_id,
        i.*
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(metadata)s::jsonb[],
        %(idempotency_key)s::text[], %(request_hash)s::bytea[], %(context)s::bytea[],
        %(lease)s::bigint[]
    ) WITH ORDINALITY AS i (
        namespace, process_id, metadata, idempotency_key, request_hash, context, lease, ord
    )
    JOIN processes AS p
        ON
            p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = ANY (ARRAY[i.process_id])
            AND p.status IS NOT DISTINCT FROM 'error'
    LEFT JOIN tasks AS broken_by
        ON
            broken_by.namespace = ANY (ARRAY[i.namespace])
            AND broken_by.process_id = ANY (ARRAY[i.process_id])
            AND broken_by.task_id = p.corrupted_by
            AND broken_by.task_type IN ('timeout', 'remove')
    WHERE
        -- Not what was started after the lock had looked for it.
        i.ord <> ALL (
            coalesce(nullif(current_setting('progressor.missing', TRUE), ''), '{}')::bigint[]
        )
        AND NOT EXISTS (
            SELECT FROM running AS r
            WHERE
                r.namespace = ANY (ARRAY[i.namespace])
                AND r.process_id = ANY (ARRAY[i.process_id])
        )
        AND NOT EXISTS (
            SELECT FROM schedule AS s
            WHERE
                s.namespace = ANY (ARRAY[i.namespace])
                AND s.process_id = ANY (ARRAY[i.process_id])
        )
        AND NOT EXISTS (
            SELECT FROM tasks AS t
            WHERE
                t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
                AND t.idempotency_key = i.idempotency_key
        )
),

process AS (
    UPDATE processes AS p
    SET
        status = 'running', previous_status = 'error', status_changed_at = i.now,
        detail = NULL, corrupted_by = NULL
    FROM item AS i
    WHERE p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = ANY (ARRAY[i.process_id])
),

repair_task AS (
    INSERT INTO tasks (
        namespace, process_id, task_id, task_type, status,
        scheduled_time, running_time, finished_time,
        metadata, idempotency_key, request_hash, context, response, lease
    )
    SELECT
        namespace, process_id, task_id, 'repair', 'finished',
        now, now, now,
        metadata, idempotency_key, request_hash, context, 'null'::bytea, lease
    FROM item
),

timer_task AS (
    INSERT INTO tasks (namespace, process_id, task_id, task_type, status, scheduled_time)
    SELECT namespace, process_id, timer_id, timer_type, 'waiting', now
    FROM item
    WHERE timer_id IS NOT NULL
)

INSERT INTO schedule (
    namespace, process_id, task_id, task_type, status, scheduled_time, claimable
)
SELECT namespace, process_id, timer_id, timer_type, 'waiting', now, TRUE
FROM item
WHERE timer_id IS NOT NULL
