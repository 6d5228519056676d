-- The first look of a repeated claim, and a second one of a claim in which a process had changed: the tasks
-- that the claim took, or one of them, with their processes as they are. It reads all that runs, on any
-- worker: both are rare, and an index would cost every claim.
SELECT
    n.name AS namespace,
    p.process_id,
    i.process_no,
    i.task_id,
    i.task_type,
    t.name,
    t.reply_to,
    t.idempotency_key,
    t.scheduled_time,
    i.running_time,
    t.last_retry_interval,
    t.attempts_count,
    i.worker_id,
    i.lease,
    t.request_hash,
    t.expires_at,
    t.trace,
    p.status,
    p.previous_status,
    p.status_changed_at,
    p.created_at,
    p.detail,
    p.metadata,
    p.corrupted_by,
    p.last_event_id,
    p.birth,
    p.group_no,
    timer.timer_type,
    timer.timer_due,
    named.named_timers,
    CASE WHEN octet_length(t.args) <= 65536 THEN t.args END AS args,
    CASE WHEN octet_length(t.context) <= 65536 THEN t.context END AS context,
    CASE WHEN octet_length(p.aux_state) <= 65536 THEN p.aux_state END AS aux_state,
    greatest(octet_length(t.args), octet_length(t.context), octet_length(p.aux_state)) > 65536 AS is_large
FROM progressor.running AS i
CROSS JOIN LATERAL (
    SELECT t.*
    FROM progressor.tasks AS t
    WHERE t.process_no = i.process_no AND t.task_id = i.task_id
    OFFSET 0
) AS t
CROSS JOIN LATERAL (
    SELECT p.* FROM progressor.processes AS p WHERE p.process_no = i.process_no OFFSET 0
) AS p
CROSS JOIN LATERAL (
    SELECT n.name FROM progressor.namespaces AS n WHERE n.namespace_no = p.namespace_no OFFSET 0
) AS n
-- include timers
WHERE
    i.worker_id = %(worker_id)s::bigint AND i.lease = %(lease)s::bigint
    AND (%(only)s::bigint IS NULL OR i.task_id = %(only)s::bigint)
ORDER BY t.scheduled_time, i.task_id
