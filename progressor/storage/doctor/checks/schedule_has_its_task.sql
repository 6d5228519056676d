-- Every row of schedule is of a waiting task of a process, with the same type and time; or of a removed process,
-- to be deleted.
-- Reads: schedule.
SELECT
    coalesce(n.name, gone.namespace) AS namespace,
    coalesce(p.process_id, gone.process_id) AS process_id,
    s.task_id,
    CASE
        WHEN p.process_no IS NULL AND gone.process_no IS NOT NULL THEN 'the process is removed'
        WHEN p.process_no IS NULL THEN format('there is no process %%s', s.process_no)
        WHEN t.status IS NULL THEN 'no such task'
        WHEN t.status <> 'waiting' THEN format('the task is %%s', t.status)
        ELSE 'type or time differ from the task''s'
    END AS found
FROM progressor.schedule AS s
LEFT JOIN progressor.processes AS p ON p.process_no = s.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.removed_processes AS gone ON gone.process_no = s.process_no AND p.process_no IS NULL
LEFT JOIN progressor.tasks AS t ON t.process_no = s.process_no AND t.task_id = s.task_id
WHERE
    (%(namespace)s::text IS NULL OR coalesce(n.name, gone.namespace) = %(namespace)s::text)
    AND (
        p.process_no IS NULL AND gone.has_requests IS NOT TRUE
        OR (t.status, t.task_type, t.scheduled_time)
        IS DISTINCT FROM ('waiting', s.task_type, s.scheduled_time)
    )
