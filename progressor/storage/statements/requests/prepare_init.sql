-- prepare_init: make the processes that do not exist, each with its init task. They are inserted in the
-- order of their names, so that two transactions with the same names wait for each other in one direction
-- only. An inserted row is a locked row. A key that has an answer from an earlier life of its process
-- starts nothing. Returns one row per process that was made; `started` returns the others.
--
--   item             the request, unless its key has an answer of an earlier life
--   process          the processes whose names were free
--   made             the requests that made them
--
--   new_task         the init tasks
--   runs_now         the tasks that run at once
--   waits            the tasks that wait
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        n.namespace_no,
        nextval('progressor.processes_process_no_seq') AS process_no,
        nextval('progressor.tasks_task_id_seq') AS task_id,
        i.worker_id IS NOT NULL AND NOT n.paused AS runs,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(process_metadata)s::jsonb[],
        %(name)s::text[], %(args)s::bytea[], %(idempotency_key)s::text[],
        %(request_hash)s::bytea[], %(context)s::bytea[], %(reply_to)s::bigint[],
        %(worker_id)s::bigint[], %(lease)s::bigint[], %(priority)s::bigint[]
    ) WITH ORDINALITY AS i (
        namespace, process_id, metadata,
        name, args, idempotency_key,
        request_hash, context, reply_to,
        worker_id, lease, priority, ord
    )
    CROSS JOIN LATERAL (
        SELECT n.namespace_no, n.paused FROM progressor.namespaces AS n WHERE n.name = i.namespace OFFSET 0
    ) AS n
    WHERE
        -- include no_earlier_answer
),

process AS (
    -- include new_processes
),

made AS MATERIALIZED (
    SELECT item.* FROM item WHERE item.process_no = ANY (ARRAY(SELECT process_no FROM process))
),

new_task AS (
    INSERT INTO progressor.tasks (
        process_no, task_id, task_type, status, scheduled_time, running_time,
        name, args, idempotency_key, request_hash, context, reply_to, worker_id, lease,
        priority, trace
    )
    SELECT
        process_no, task_id, 'init', CASE WHEN runs THEN 'running' ELSE 'waiting' END::progressor.task_status,
        now, CASE WHEN runs THEN now END,
        name, args, idempotency_key, request_hash, context, reply_to,
        CASE WHEN runs THEN worker_id END, lease,
        nullif(priority, 0), (%(trace)s::text[])[ord]
    FROM made
),

runs_now AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
    SELECT process_no, task_id, 'init', worker_id, lease, now
    FROM made
    WHERE runs
),

waits AS (
    INSERT INTO progressor.schedule (
        process_no, task_id, namespace_no, task_type, scheduled_time, claimable, order_time
    )
    SELECT
        process_no, task_id, namespace_no, 'init', now, TRUE,
        now - nullif(priority, 0) * interval '1 minute'
    FROM made
    WHERE NOT runs
)

SELECT ord, process_no, task_id, runs, now FROM made
