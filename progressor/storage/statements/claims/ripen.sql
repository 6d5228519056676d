-- Tasks that were held until a time which has come may be claimed; those of groups wait for room there. A claim
-- comes after it, in a transaction of its own. Row locks skip rows that others hold, as those of claims do: a task that was skipped
-- is released by the next look, or by whoever changed its process.
WITH due AS MATERIALIZED (
    SELECT s.process_no, s.task_id, p.group_no
    FROM progressor.schedule AS s
    JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[s.process_no])
    WHERE
        s.namespace_no = (
            SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
        )
        AND s.group_no IS NULL AND s.held_time <= coalesce(%(now)s::timestamptz, now())
    -- With the group, which is NULL: in the words of the index, or all of them would be sorted.
    ORDER BY s.group_no, s.held_time, s.task_id
    LIMIT %(limit)s::bigint
    FOR NO KEY UPDATE OF p, s SKIP LOCKED
)

UPDATE progressor.schedule AS s
SET
    claimable = due.group_no IS NULL,
    held_time = CASE WHEN due.group_no IS NOT NULL THEN coalesce(s.order_time, s.scheduled_time) END,
    group_no = due.group_no
FROM due
WHERE s.process_no = ANY (ARRAY[due.process_no]) AND s.task_id = due.task_id
RETURNING s.task_id
