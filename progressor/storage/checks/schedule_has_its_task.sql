-- What stands in schedule is a waiting task of a process, with the same type and time.
-- Reads: schedule.
SELECT
    s.namespace, s.process_id, s.task_id,
    CASE
        WHEN p.status IS NULL THEN 'no such process'
        WHEN t.status IS NULL THEN 'no such task'
        WHEN t.status <> 'waiting' THEN format('the task is %%s', t.status)
        ELSE 'type or time differ from the task''s'
    END AS found
FROM schedule AS s
LEFT JOIN processes AS p ON p.namespace = s.namespace AND p.process_id = s.process_id
LEFT JOIN tasks AS t
    ON t.namespace = s.namespace AND t.process_id = s.process_id AND t.task_id = s.task_id
WHERE
    (%(namespace)s::text IS NULL OR s.namespace = %(namespace)s::text)
    AND (
        p.status IS NULL
        OR (t.status, t.task_type, t.scheduled_time)
        IS DISTINCT FROM ('waiting', s.task_type, s.scheduled_time)
    )
