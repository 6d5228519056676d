SELECT %(namespace)s::text AS namespace, c.*, timer.*
FROM started AS c
LEFT JOIN LATERAL (
    SELECT s.task_type AS timer_type, s.scheduled_time AS timer_due
    FROM progressor.schedule AS s
    WHERE
        s.process_no + 0 = c.process_no AND s.task_type IN ('timeout', 'remove')
        AND c.task_type IN ('call', 'notify', 'repair')
    OFFSET 0
) AS timer ON TRUE
ORDER BY c.scheduled_time, c.task_id
