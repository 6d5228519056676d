-- prepare_init, second: give each process that this transaction has just made its init task.
-- Just made: a process in status init always has its init task in running or schedule, except the one
-- whose insert precedes this statement in the same transaction.
WITH item AS MATERIALIZED (
    SELECT
        nextval('tasks_task_id_seq') AS task_id,
        i.has_worker AND i.namespace <> ALL (
            ARRAY(SELECT n.name FROM namespaces AS n WHERE n.paused)
        ) AS runs,
        coalesce(%(now)s::timestamptz, now()) AS now,
        i.*
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(args)s::bytea[], %(metadata)s::jsonb[],
        %(idempotency_key)s::text[], %(request_hash)s::bytea[], %(context)s::bytea[],
        %(has_worker)s::boolean[], %(worker_id)s::text[], %(lease)s::bigint[]
    ) AS i (
        namespace, process_id, args, metadata,
        idempotency_key, request_hash, context,
        has_worker, worker_id, lease
    )
    JOIN processes AS p
        ON
            p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = ANY (ARRAY[i.process_id])
            AND p.status = 'init'
    WHERE
        NOT EXISTS (
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
),

new_task AS (
    INSERT INTO tasks (
        namespace, process_id, task_id, task_type, status, scheduled_time, running_time,
        args, metadata, idempotency_key, request_hash, context, worker_id, lease
    )
    SELECT
        namespace, process_id, task_id, 'init',
        CASE WHEN runs THEN 'running' ELSE 'waiting' END,
        now, CASE WHEN runs THEN now END,
        args, metadata, idempotency_key, request_hash, context,
        CASE WHEN runs THEN worker_id END, lease
    FROM item
),

runs_now AS (
    INSERT INTO running (
        namespace, process_id, task_id, task_type, worker_id, lease, running_time
    )
    SELECT namespace, process_id, task_id, 'init', worker_id, lease, now
    FROM item
    WHERE runs
)

INSERT INTO schedule (
    namespace, process_id, task_id, task_type, status, scheduled_time, claimable
)
SELECT namespace, process_id, task_id, 'init', 'waiting', now, TRUE
FROM item
WHERE NOT runs
