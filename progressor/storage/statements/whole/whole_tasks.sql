-- whole, second: the tasks of these processes, in their order.
SELECT
    t.process_no,
    t.task_id, t.task_type, t.status, t.name, t.args, t.context, t.response, t.error, t.idempotency_key,
    t.request_hash, t.scheduled_time, t.running_time, t.finished_time, t.attempts_count, t.zombie_count,
    t.last_retry_interval, t.worker_id, t.expires_at, t.priority, t.trace,
    s.order_time
FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
CROSS JOIN LATERAL (
    SELECT t.* FROM progressor.tasks AS t WHERE t.process_no = i.process_no OFFSET 0
) AS t
LEFT JOIN LATERAL (
    SELECT s.order_time
    FROM progressor.schedule AS s
    WHERE s.process_no = t.process_no AND s.task_id = t.task_id
    OFFSET 0
) AS s ON TRUE
ORDER BY t.process_no, t.task_id
