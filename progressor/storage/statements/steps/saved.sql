-- save_result, repeated after a lost answer: the steps that the first try ended. Only the holder of a lease
-- ends a task and leaves its lease on it (a collector removes it), so a task of this lease that no longer
-- runs was saved; the running row of the next lease is its continuation.
SELECT
    i.ord,
    coalesce(%(now)s::timestamptz, now()) AS now,
    coalesce(rest.rests_until, head.scheduled_time) AS due,
    timer.timer_type,
    timer.timer_due,
    named.named_timers,
    r.task_id AS next_id,
    r.task_type AS next_type,
    next_task.name,
    next_task.args,
    next_task.context,
    next_task.reply_to,
    next_task.idempotency_key,
    next_task.request_hash,
    next_task.scheduled_time,
    next_task.last_retry_interval,
    next_task.attempts_count,
    next_task.expires_at,
    next_task.trace
FROM unnest(%(process_no)s::bigint[], %(task_id)s::bigint[], %(lease)s::bigint[])
    WITH ORDINALITY AS i (process_no, task_id, lease, ord)
CROSS JOIN LATERAL (
    SELECT FROM progressor.tasks AS t
    WHERE
        t.process_no = i.process_no AND t.task_id = i.task_id
        AND t.lease = i.lease AND t.status <> 'running'
    OFFSET 0
) AS ended
LEFT JOIN LATERAL (
    SELECT r.task_id, r.task_type
    FROM progressor.running AS r
    WHERE r.process_no = i.process_no AND r.lease = i.lease + 1
    OFFSET 0
) AS r ON TRUE
LEFT JOIN LATERAL (
    SELECT coalesce(s.held_time, s.scheduled_time) AS scheduled_time
    FROM progressor.schedule AS s
    WHERE
        s.process_no + 0 = i.process_no AND s.task_type IN ('timeout', 'remove')
        AND (s.claimable OR s.held_time IS NOT NULL)
    OFFSET 0
) AS head ON TRUE
LEFT JOIN LATERAL (
    SELECT p.rests_until
    FROM progressor.processes AS p
    WHERE p.process_no = i.process_no AND p.rests_until > coalesce(%(now)s::timestamptz, now())
    OFFSET 0
) AS rest ON TRUE
-- include timers
LEFT JOIN LATERAL (
    SELECT t.*
    FROM progressor.tasks AS t
    WHERE t.process_no = i.process_no AND t.task_id = r.task_id
    OFFSET 0
) AS next_task ON TRUE
