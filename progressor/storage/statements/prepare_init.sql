-- prepare_init, second: give each process that this transaction has just made its init task.
-- Just made: a process in status init always has its init task in running or schedule, except the one
-- whose insert precedes this statement in the same transaction.
-- What is not accepted is told from the tables, as prepare_call does.
WITH placed AS MATERIALIZED (
    SELECT
        CASE WHEN item.accepted THEN nextval('tasks_task_id_seq') END AS new_id,
        item.accepted AND item.has_worker AND item.namespace <> ALL (
            ARRAY(SELECT n.name FROM namespaces AS n WHERE n.paused)
        ) AS runs,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
        item.*
    FROM (
        SELECT
            i.*,
            coalesce(p.status = 'init', FALSE)
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
            ) AS accepted,
            p.status,
            p.previous_status,
            p.status_changed_at,
            p.created_at,
            p.detail,
            p.aux_state,
            p.metadata AS process_metadata,
            p.corrupted_by,
            p.last_event_id
        FROM unnest(
            %(namespace)s::text[], %(process_id)s::text[], %(args)s::bytea[], %(metadata)s::jsonb[],
            %(idempotency_key)s::text[], %(request_hash)s::bytea[], %(context)s::bytea[],
            %(has_worker)s::boolean[], %(worker_id)s::text[], %(lease)s::bigint[]
        ) WITH ORDINALITY AS i (
            namespace, process_id, args, metadata,
            idempotency_key, request_hash, context,
            has_worker, worker_id, lease, ord
        )
        LEFT JOIN processes AS p
            ON p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = ANY (ARRAY[i.process_id])
        -- A fence for the planner: what is looked up here is looked up once, not at each use.
        OFFSET 0
    ) AS item
),

new_task AS (
    INSERT INTO tasks (
        namespace, process_id, task_id, task_type, status, scheduled_time, running_time,
        args, metadata, idempotency_key, request_hash, context, worker_id, lease
    )
    SELECT
        namespace, process_id, new_id, 'init',
        CASE WHEN runs THEN 'running' ELSE 'waiting' END,
        now, CASE WHEN runs THEN now END,
        args, metadata, idempotency_key, request_hash, context,
        CASE WHEN runs THEN worker_id END, lease
    FROM placed
    WHERE accepted
),

runs_now AS (
    INSERT INTO running (
        namespace, process_id, task_id, task_type, worker_id, lease, running_time
    )
    SELECT namespace, process_id, new_id, 'init', worker_id, lease, now
    FROM placed
    WHERE runs
),

waits AS (
    INSERT INTO schedule (
        namespace, process_id, task_id, task_type, status, scheduled_time, claimable
    )
    SELECT namespace, process_id, new_id, 'init', 'waiting', now, TRUE
    FROM placed
    WHERE accepted AND NOT runs
)

SELECT
    i.status,
    i.previous_status,
    i.status_changed_at,
    i.created_at,
    i.detail,
    CASE WHEN i.runs OR r.lease IS NOT NULL THEN i.aux_state END AS aux_state,
    i.process_metadata,
    i.corrupted_by,
    i.last_event_id,
    coalesce(i.new_id, t.task_id) AS task_id,
    CASE WHEN i.runs THEN 'running' WHEN i.accepted THEN 'waiting' ELSE t.status END AS task_status,
    CASE WHEN i.accepted THEN i.request_hash ELSE t.request_hash END AS request_hash,
    t.response,
    t.error,
    coalesce(t.scheduled_time, i.now) AS scheduled_time,
    CASE WHEN i.runs THEN i.now ELSE r.running_time END AS running_time,
    i.runs OR r.lease IS NOT NULL AS runs,
    i.accepted OR t.lease = i.lease AS own
FROM placed AS i
LEFT JOIN tasks AS t
    ON
        NOT i.accepted
        AND t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
        AND t.idempotency_key = i.idempotency_key
LEFT JOIN running AS r
    ON
        r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = ANY (ARRAY[i.process_id])
        AND r.task_id = t.task_id AND r.lease = i.lease
ORDER BY i.ord
