-- Of what waits on a process, one task may be claimed if nothing runs: its oldest request, else its timer.
-- Reads: schedule, running.
SELECT
    s.namespace, s.process_id, s.task_id,
    CASE
        WHEN s.claimable THEN 'it may be claimed, though it is not the next'
        ELSE 'it is the next, but cannot be claimed'
    END AS found
FROM (
    SELECT
        s.namespace, s.process_id, s.task_id, s.claimable,
        r.task_id IS NULL AND row_number() OVER (
            PARTITION BY s.namespace, s.process_id
            ORDER BY s.task_type IN ('timeout', 'remove'), s.task_id
        ) = 1 AS is_next
    FROM schedule AS s
    LEFT JOIN running AS r ON r.namespace = s.namespace AND r.process_id = s.process_id
    WHERE %(namespace)s::text IS NULL OR s.namespace = %(namespace)s::text
) AS s
WHERE s.claimable <> s.is_next
