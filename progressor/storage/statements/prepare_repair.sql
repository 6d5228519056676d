-- prepare_repair, after the lock: a process in status error gets one repair at a time. Nothing else
-- waits on a broken process, so the repair is always the next task.
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        row_number() OVER (PARTITION BY i.namespace, i.process_id ORDER BY i.ord) AS place
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(args)s::bytea[], %(metadata)s::jsonb[],
        %(idempotency_key)s::text[], %(request_hash)s::bytea[], %(context)s::bytea[],
        %(has_worker)s::boolean[], %(worker_id)s::text[], %(lease)s::bigint[]
    ) WITH ORDINALITY AS i (
        namespace, process_id, args, metadata,
        idempotency_key, request_hash, context,
        has_worker, worker_id, lease, ord
    )
    JOIN processes AS p
        ON
            p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = ANY (ARRAY[i.process_id])
            AND p.status IS NOT DISTINCT FROM 'error'
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

placed AS MATERIALIZED (
    SELECT
        nextval('tasks_task_id_seq') AS task_id,
        item.has_worker AND item.namespace <> ALL (
            ARRAY(SELECT n.name FROM namespaces AS n WHERE n.paused)
        ) AS runs,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
        item.*
    FROM item
    WHERE item.place = 1
),

new_task AS (
    INSERT INTO tasks (
        namespace, process_id, task_id, task_type, status, scheduled_time, running_time,
        args, metadata, idempotency_key, request_hash, context, worker_id, lease
    )
    SELECT
        namespace, process_id, task_id, 'repair',
        CASE WHEN runs THEN 'running' ELSE 'waiting' END,
        now, CASE WHEN runs THEN now END,
        args, metadata, idempotency_key, request_hash, context,
        CASE WHEN runs THEN worker_id END, lease
    FROM placed
),

runs_now AS (
    INSERT INTO running (
        namespace, process_id, task_id, task_type, worker_id, lease, running_time
    )
    SELECT namespace, process_id, task_id, 'repair', worker_id, lease, now
    FROM placed
    WHERE runs
)

INSERT INTO schedule (
    namespace, process_id, task_id, task_type, status, scheduled_time, claimable
)
SELECT namespace, process_id, task_id, 'repair', 'waiting', now, TRUE
FROM placed
WHERE NOT runs
