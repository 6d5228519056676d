-- What stands in running is a running task of a process, with the same type, worker, lease and time.
-- Reads: running.
SELECT
    r.namespace, r.process_id, r.task_id,
    CASE
        WHEN p.status IS NULL THEN 'no such process'
        WHEN t.status IS NULL THEN 'no such task'
        WHEN t.status <> 'running' THEN format('the task is %%s', t.status)
        ELSE 'type, worker, lease or time differ from the task''s'
    END AS found
FROM running AS r
LEFT JOIN processes AS p ON p.namespace = r.namespace AND p.process_id = r.process_id
LEFT JOIN tasks AS t
    ON t.namespace = r.namespace AND t.process_id = r.process_id AND t.task_id = r.task_id
WHERE
    (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s::text)
    AND (
        p.status IS NULL
        OR (t.status, t.task_type, t.worker_id, t.lease, t.running_time)
        IS DISTINCT FROM ('running', r.task_type, r.worker_id, r.lease, r.running_time)
    )
