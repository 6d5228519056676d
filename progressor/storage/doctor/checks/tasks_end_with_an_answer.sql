-- A task has a finished_time once it is final; then it has no error if it is finished, and one if it failed or was
-- cancelled. Requests have an idempotency key, timers none; no task that waits or runs has a response.
-- Reads: all tasks.
-- A finished request may have no response: a raw handler may return none.
SELECT
    coalesce(n.name, gone.namespace) AS namespace,
    coalesce(p.process_id, gone.process_id) AS process_id,
    t.task_id,
    CASE
        WHEN (t.finished_time IS NULL) <> (t.status IN ('waiting', 'running'))
            THEN format('%%s, and finished at %%s', t.status, coalesce(t.finished_time::text, 'no time'))
        WHEN (t.idempotency_key IS NULL) <> (t.task_type IN ('timeout', 'remove'))
            THEN format('a %%s with the idempotency key %%s', t.task_type, t.idempotency_key)
        WHEN t.status = 'finished' THEN 'finished with an error'
        WHEN t.status IN ('error', 'cancelled') THEN format('%%s without a reason', t.status)
        ELSE format('%%s, with a response', t.status)
    END AS found
FROM progressor.tasks AS t
LEFT JOIN progressor.processes AS p ON p.process_no = t.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.removed_processes AS gone ON gone.process_no = t.process_no AND p.process_no IS NULL
WHERE
    (%(namespace)s::text IS NULL OR coalesce(n.name, gone.namespace) = %(namespace)s::text)
    -- A task whose process is known nowhere is a finding of `tasks_of_a_process`.
    AND coalesce(p.process_no, gone.process_no) IS NOT NULL
    AND (
        (t.finished_time IS NULL) <> (t.status IN ('waiting', 'running'))
        OR (t.idempotency_key IS NULL) <> (t.task_type IN ('timeout', 'remove'))
        OR CASE
            WHEN t.status = 'finished' THEN t.error IS NOT NULL
            WHEN t.status IN ('error', 'cancelled') THEN t.error IS NULL
            ELSE t.response IS NOT NULL
        END
    )
