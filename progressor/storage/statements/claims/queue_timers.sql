-- Timers of groups that are due wait for room in their groups. Until then they are claimable, as all timers
-- that wait for their times, and no claim of timers takes them. It looks at the oldest due timers only: behind
-- many that are of no group, others wait until these are claimed. Row locks skip rows that others hold.
WITH looked AS MATERIALIZED (
    SELECT s.process_no, s.task_id
    FROM progressor.schedule AS s
    WHERE
        s.namespace_no = (
            SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
        )
        AND s.claimable
        AND s.task_type IN ('timeout', 'remove')
        AND s.scheduled_time <= coalesce(%(now)s::timestamptz, now())
    ORDER BY s.scheduled_time, s.task_id
    LIMIT %(limit)s::bigint
),

due AS MATERIALIZED (
    SELECT s.process_no, s.task_id, p.group_no
    FROM looked AS l
    JOIN progressor.schedule AS s
        ON s.process_no = ANY (ARRAY[l.process_no]) AND s.task_id = ANY (ARRAY[l.task_id])
    JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[s.process_no])
    WHERE s.claimable AND p.group_no IS NOT NULL
    FOR NO KEY UPDATE OF p, s SKIP LOCKED
)

UPDATE progressor.schedule AS s
SET claimable = FALSE, held_time = s.scheduled_time, group_no = due.group_no
FROM due
WHERE s.process_no = ANY (ARRAY[due.process_no]) AND s.task_id = due.task_id
RETURNING s.task_id
