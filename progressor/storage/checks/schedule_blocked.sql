-- A timer is blocked while a request waits or a task runs on its process, and only then.
-- Reads: schedule, running.
SELECT
    s.namespace, s.process_id, s.task_id,
    CASE
        WHEN s.status = 'blocked' THEN 'blocked, though nothing is before it'
        ELSE 'not blocked, though something is before it'
    END AS found
FROM schedule AS s
WHERE
    (%(namespace)s::text IS NULL OR s.namespace = %(namespace)s::text)
    AND s.task_type IN ('timeout', 'remove')
    AND (s.status = 'blocked') <> (
        EXISTS (
            SELECT FROM running AS r WHERE r.namespace = s.namespace AND r.process_id = s.process_id
        )
        OR EXISTS (
            SELECT FROM schedule AS o
            WHERE
                o.namespace = s.namespace AND o.process_id = s.process_id
                AND o.task_type NOT IN ('timeout', 'remove')
        )
    )
