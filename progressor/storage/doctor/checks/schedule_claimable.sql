-- One waiting task of a process may be claimed if none runs, or is held until a time: its oldest request, else
-- its earliest timer. On a broken process only a repair may be: its timers are held, other requests are to be
-- cancelled.
-- Reads: schedule, running.
-- Any other timer that may not be claimed waits for an earlier one, a request, or the task that runs.
SELECT
    n.name AS namespace, p.process_id, s.task_id,
    CASE
        WHEN s.claimable AND s.held_time IS NOT NULL THEN 'it may be claimed, though it is held'
        WHEN s.group_no IS NOT NULL AND s.is_next THEN 'it waits for room, but not in the group of its process'
        WHEN s.claimable AND p.group_no IS NOT NULL THEN 'it may be claimed, though its process is in a group'
        WHEN NOT s.is_head THEN 'it is the next, but cannot be claimed'
        WHEN s.is_next THEN 'it is held, but may be claimed'
        ELSE 'it may be claimed, though it is not the next'
    END AS found
FROM (
    SELECT
        s.process_no, s.task_id, s.claimable, s.held_time, s.group_no,
        s.claimable OR s.held_time IS NOT NULL AS is_head,
        s.task_type, s.task_type = 'repair' AS is_repair,
        r.task_id IS NULL AND row_number() OVER (
            PARTITION BY s.process_no
            ORDER BY
                s.task_type IN ('timeout', 'remove'),
                CASE WHEN s.task_type IN ('timeout', 'remove') THEN s.scheduled_time END,
                s.task_id
        ) = 1 AS is_next
    FROM progressor.schedule AS s
    LEFT JOIN progressor.running AS r ON r.process_no = s.process_no
) AS s
JOIN progressor.processes AS p ON p.process_no = s.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND (
        s.is_head <> (s.is_next AND (s.is_repair OR p.status <> 'error'))
        OR s.claimable AND s.held_time IS NOT NULL
        OR s.group_no IS NOT NULL AND (s.held_time IS NULL OR s.group_no IS DISTINCT FROM p.group_no)
        OR s.claimable AND p.group_no IS NOT NULL AND s.task_type NOT IN ('timeout', 'remove')
    )
