-- Requests whose handlers began in this transaction and did not end in it, or whose end has to be saved by
-- itself: write their tasks as running, held by their worker, and block the first timers of their processes
-- behind them, as prepare_* would have done.
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        timer.place AS timer_place
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[],
        %(task_type)s::text[], %(name)s::text[], %(args)s::bytea[], %(idempotency_key)s::text[],
        %(request_hash)s::bytea[], %(context)s::bytea[], %(reply_to)s::bigint[], %(began)s::timestamptz[],
        %(expires)s::bigint[], %(priority)s::bigint[], %(trace)s::text[]
    ) AS i (
        process_no, task_id, worker_id, lease,
        task_type, name, args, idempotency_key,
        request_hash, context, reply_to, began,
        expires, priority, trace
    )
    LEFT JOIN LATERAL (
        SELECT s.ctid AS place, s.claimable
        FROM progressor.schedule AS s
        WHERE s.process_no + 0 = i.process_no AND s.task_type IN ('timeout', 'remove')
        OFFSET 0
    ) AS timer ON timer.claimable
),

new_task AS (
    INSERT INTO progressor.tasks (
        process_no, task_id, task_type, status, scheduled_time, running_time,
        name, args, idempotency_key, request_hash, context, reply_to, worker_id, lease, expires_at,
        priority, trace
    )
    SELECT
        process_no, task_id, task_type::progressor.task_type, 'running', began, began,
        name, args, idempotency_key, request_hash, context, reply_to, worker_id, lease,
        began + expires * interval '1 microsecond', nullif(priority, 0), trace
    FROM item
),

runs_now AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
    SELECT process_no, task_id, task_type::progressor.task_type, worker_id, lease, began
    FROM item
)

UPDATE progressor.schedule AS s
SET claimable = FALSE
FROM item AS i
WHERE s.ctid = i.timer_place
