-- A task has a finished_time once it is final, and then: finished, no error; error or cancelled, a reason.
-- Requests have an idempotency key, timers none; no task that still lives has a response.
-- Reads: all tasks.
-- A finished request may have no response: a raw handler can answer nothing.
SELECT
    t.namespace, t.process_id, t.task_id,
    CASE
        WHEN (t.finished_time IS NULL) <> (t.status IN ('waiting', 'running'))
            THEN format('%%s, and finished at %%s', t.status, coalesce(t.finished_time::text, 'no time'))
        WHEN (t.idempotency_key IS NULL) <> (t.task_type IN ('timeout', 'remove'))
            THEN format('a %%s with the idempotency key %%s', t.task_type, t.idempotency_key)
        WHEN t.status = 'finished' THEN 'finished with an error'
        WHEN t.status IN ('error', 'cancelled') THEN format('%%s without a reason', t.status)
        ELSE format('%%s, with a response', t.status)
    END AS found
FROM tasks AS t
WHERE
    (%(namespace)s::text IS NULL OR t.namespace = %(namespace)s::text)
    AND (
        (t.finished_time IS NULL) <> (t.status IN ('waiting', 'running'))
        OR (t.idempotency_key IS NULL) <> (t.task_type IN ('timeout', 'remove'))
        OR CASE
            WHEN t.status = 'finished' THEN t.error IS NOT NULL
            WHEN t.status IN ('error', 'cancelled') THEN t.error IS NULL
            ELSE t.response IS NOT NULL
        END
    )
