-- save_result, repeated after a lost answer: which of these steps did the first try end? Only the holder
-- of a lease ends a task and leaves its lease on it (a collector takes it off), so a task of this lease
-- that no longer runs was saved; the running row of the next lease is its continuation.
SELECT
    i.ord,
    coalesce(%(now)s::timestamptz, now()) AS now,
    CASE WHEN timer.claimable THEN timer.scheduled_time END AS due,
    r.task_id AS next_id,
    r.task_type AS next_type,
    next_task.args,
    next_task.metadata,
    next_task.context,
    next_task.idempotency_key,
    next_task.scheduled_time,
    next_task.last_retry_interval,
    next_task.attempts_count
FROM unnest(
    %(namespace)s::text[], %(process_id)s::text[], %(task_id)s::bigint[], %(lease)s::bigint[]
) WITH ORDINALITY AS i (namespace, process_id, task_id, lease, ord)
JOIN tasks AS t
    ON
        t.namespace = ANY (ARRAY[i.namespace])
        AND t.process_id = ANY (ARRAY[i.process_id]) AND t.task_id = i.task_id
        AND t.lease = i.lease AND t.status <> 'running'
LEFT JOIN running AS r
    ON
        r.namespace = ANY (ARRAY[i.namespace])
        AND r.process_id = ANY (ARRAY[i.process_id]) AND r.lease = i.lease + 1
LEFT JOIN schedule AS timer
    ON
        timer.namespace = ANY (ARRAY[i.namespace]) AND timer.process_id = ANY (ARRAY[i.process_id])
        AND timer.task_type IN ('timeout', 'remove')
LEFT JOIN tasks AS next_task
    ON
        next_task.namespace = ANY (ARRAY[r.namespace])
        AND next_task.process_id = ANY (ARRAY[r.process_id])
        AND next_task.task_id = r.task_id
