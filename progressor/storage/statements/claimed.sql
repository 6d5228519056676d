-- The last statement of every claim: the tasks that this worker holds under this lease, with their
-- processes as they are.
SELECT
    t.namespace,
    t.process_id,
    t.task_id,
    t.task_type,
    t.args,
    t.metadata,
    t.context,
    t.idempotency_key,
    t.scheduled_time,
    r.running_time,
    t.last_retry_interval,
    t.attempts_count,
    r.worker_id,
    r.lease,
    p.status,
    p.previous_status,
    p.status_changed_at,
    p.created_at,
    p.detail,
    p.aux_state,
    p.metadata AS process_metadata,
    p.corrupted_by,
    p.last_event_id
FROM running AS r
JOIN tasks AS t
    ON
        t.namespace = ANY (ARRAY[r.namespace]) AND t.process_id = ANY (ARRAY[r.process_id])
        AND t.task_id = r.task_id
JOIN processes AS p ON p.namespace = ANY (ARRAY[r.namespace])
AND p.process_id = ANY (ARRAY[r.process_id])
WHERE r.worker_id = %(worker_id)s::text AND r.lease = %(lease)s::bigint
ORDER BY t.scheduled_time, t.task_id
