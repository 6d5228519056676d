-- prepare_call and notify, after the lock: append to the mailbox of each process. The first task of an
-- idle process runs at once if its caller has a free worker; a live timer is blocked behind it.
-- Task ids are drawn under the lock, so their order in a process is the order of acceptance.
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        row_number() OVER (PARTITION BY i.namespace, i.process_id ORDER BY i.ord) = 1
        AND NOT EXISTS (
            SELECT FROM running AS r
            WHERE
                r.namespace = ANY (ARRAY[i.namespace])
                AND r.process_id = ANY (ARRAY[i.process_id])
        )
        AND NOT EXISTS (
            SELECT FROM schedule AS s
            WHERE
                s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = ANY (ARRAY[i.process_id])
                AND s.task_type IN ('init', 'call', 'notify', 'repair')
        ) AS is_next
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(task_type)s::text[], %(args)s::bytea[],
        %(metadata)s::jsonb[], %(idempotency_key)s::text[], %(request_hash)s::bytea[],
        %(context)s::bytea[], %(has_worker)s::boolean[], %(worker_id)s::text[], %(lease)s::bigint[]
    ) WITH ORDINALITY AS i (
        namespace, process_id, task_type, args,
        metadata, idempotency_key, request_hash,
        context, has_worker, worker_id, lease, ord
    )
    JOIN processes AS p
        ON
            p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = ANY (ARRAY[i.process_id])
            AND p.status IN ('init', 'running')
    WHERE
        -- Not what was started after the lock had looked for it.
        i.ord <> ALL (
            coalesce(nullif(current_setting('progressor.missing', TRUE), ''), '{}')::bigint[]
        )
        AND NOT EXISTS (
            SELECT FROM tasks AS t
            WHERE
                t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
                AND t.idempotency_key = i.idempotency_key
        )
    ORDER BY i.ord
),

placed AS MATERIALIZED (
    SELECT
        nextval('tasks_task_id_seq') AS task_id,
        item.is_next AND item.has_worker AND item.namespace <> ALL (
            ARRAY(SELECT n.name FROM namespaces AS n WHERE n.paused)
        ) AS runs,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
        item.*
    FROM item
),

new_task AS (
    INSERT INTO tasks (
        namespace, process_id, task_id, task_type, status, scheduled_time, running_time,
        args, metadata, idempotency_key, request_hash, context, worker_id, lease
    )
    SELECT
        namespace, process_id, task_id, task_type,
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
    SELECT namespace, process_id, task_id, task_type, worker_id, lease, now
    FROM placed
    WHERE runs
),

blocked_timer AS (
    UPDATE schedule AS s
    SET status = 'blocked', claimable = FALSE
    FROM placed AS i
    WHERE
        i.is_next
        AND s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = ANY (ARRAY[i.process_id])
        -- Not "IN ('timeout', 'remove')": the key finds the one row, not the index of all timers.
        AND s.task_type NOT IN ('init', 'call', 'notify', 'repair')
)

INSERT INTO schedule (
    namespace, process_id, task_id, task_type, status, scheduled_time, claimable
)
SELECT namespace, process_id, task_id, task_type, 'waiting', now, is_next
FROM placed
WHERE NOT runs
