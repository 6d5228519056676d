-- Every row of running is of a running task of a process, with the same type, worker, lease and time.
-- Reads: running.
SELECT
    coalesce(n.name, gone.namespace) AS namespace,
    coalesce(p.process_id, gone.process_id) AS process_id,
    r.task_id,
    CASE
        WHEN p.process_no IS NULL AND gone.process_no IS NOT NULL THEN 'the process is removed'
        WHEN p.process_no IS NULL THEN format('there is no process %%s', r.process_no)
        WHEN t.status IS NULL THEN 'no such task'
        WHEN t.status <> 'running' THEN format('the task is %%s', t.status)
        ELSE 'type, worker, lease or time differ from the task''s'
    END AS found
FROM progressor.running AS r
LEFT JOIN progressor.processes AS p ON p.process_no = r.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.removed_processes AS gone ON gone.process_no = r.process_no AND p.process_no IS NULL
LEFT JOIN progressor.tasks AS t ON t.process_no = r.process_no AND t.task_id = r.task_id
WHERE
    (%(namespace)s::text IS NULL OR coalesce(n.name, gone.namespace) = %(namespace)s::text)
    AND (
        p.process_no IS NULL
        OR (t.status, t.task_type, t.worker_id, t.lease, t.running_time)
        IS DISTINCT FROM ('running', r.task_type, r.worker_id, r.lease, r.running_time)
    )
