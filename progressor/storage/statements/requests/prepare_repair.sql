-- prepare_repair, after the lock: a process in status error gets one repair at a time. No other request
-- waits on a broken process and its timer is held, so the repair is always the next task.
WITH item AS (
    SELECT
        i.*,
        p.namespace_no,
        p.group_no,
        row_number() OVER (PARTITION BY i.process_no ORDER BY i.ord) AS place
    FROM (
        SELECT
            i.*,
            ((SELECT current_setting('prg.locked')::bigint[]))[i.ord] AS process_no
        FROM unnest(
            %(namespace)s::text[], %(process_id)s::text[],
            %(name)s::text[], %(args)s::bytea[], %(idempotency_key)s::text[],
            %(request_hash)s::bytea[], %(context)s::bytea[], %(reply_to)s::bigint[],
            %(worker_id)s::bigint[], %(lease)s::bigint[]
        ) WITH ORDINALITY AS i (
            namespace, process_id,
            name, args, idempotency_key,
            request_hash, context, reply_to,
            worker_id, lease, ord
        )
    ) AS i
    CROSS JOIN LATERAL (
        SELECT p.namespace_no, p.group_no
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no AND p.status = 'error'
        OFFSET 0
    ) AS p
    WHERE
        -- include idle_and_new
),

placed AS MATERIALIZED (
    SELECT
        item.*,
        nextval('progressor.tasks_task_id_seq') AS task_id,
        worker_id IS NOT NULL AND group_no IS NULL AND namespace_no <> ALL (
            ARRAY(SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.paused)
        ) AS runs,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
    FROM item
    WHERE place = 1
),

new_task AS (
    INSERT INTO progressor.tasks (
        process_no, task_id, task_type, status, scheduled_time, running_time,
        name, args, idempotency_key, request_hash, context, reply_to, worker_id, lease, trace
    )
    SELECT
        process_no, task_id, 'repair',
        CASE WHEN runs THEN 'running' ELSE 'waiting' END::progressor.task_status,
        now, CASE WHEN runs THEN now END,
        name, args, idempotency_key, request_hash, context, reply_to,
        CASE WHEN runs THEN worker_id END, lease, (%(trace)s::text[])[ord]
    FROM placed
),

runs_now AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
    SELECT process_no, task_id, 'repair', worker_id, lease, now
    FROM placed
    WHERE runs
)

INSERT INTO progressor.schedule (
    process_no, task_id, namespace_no, task_type, scheduled_time, claimable, held_time, group_no
)
SELECT
    process_no, task_id, namespace_no, 'repair', now, group_no IS NULL,
    CASE WHEN group_no IS NOT NULL THEN now END, group_no
FROM placed
WHERE NOT runs
