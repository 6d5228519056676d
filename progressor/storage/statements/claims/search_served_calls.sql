-- As search_calls, but leave tasks for some functions to other workers. It looks at the first tasks only:
-- behind many that are left, others wait until the workers that serve these have taken them.
--
--   looked, served              the first tasks, and those of them that are not left to others
--   due, captured               the tasks that are claimed, locked, and written to running
--   started, taken              their rows, and that they leave the schedule
WITH looked AS MATERIALIZED (
    SELECT s.process_no, s.task_id
    FROM progressor.schedule AS s
    WHERE
        -- include claimable
        AND s.task_type IN ('init', 'call', 'notify', 'repair')
    ORDER BY coalesce(s.order_time, s.scheduled_time), s.task_id
    LIMIT %(limit)s::bigint + 1000
),

served AS MATERIALIZED (
    SELECT l.process_no, l.task_id
    FROM looked AS l
    CROSS JOIN LATERAL (
        SELECT t.task_type, t.name
        FROM progressor.tasks AS t
        WHERE t.process_no = l.process_no AND t.task_id = l.task_id
        OFFSET 0
    ) AS t
    WHERE
        coalesce('call ' || t.name, t.task_type::text) <> ALL (%(left)s::text[])
),

due AS MATERIALIZED (
    SELECT
        d.*,
        -- When its process was locked: now() may be older than the end of the step before.
        coalesce(%(now)s::timestamptz, clock_timestamp()) AS running_time
    FROM (
        SELECT p.*, s.task_id, s.task_type
        FROM served AS c
        JOIN progressor.schedule AS s
            ON s.process_no = ANY (ARRAY[c.process_no]) AND s.task_id = ANY (ARRAY[c.task_id])
        JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[s.process_no])
        WHERE
            -- As in `looked`, of a row that was changed meanwhile. Without the namespace, by its key alone.
            s.claimable
            AND NOT EXISTS (
                SELECT FROM progressor.running AS r WHERE r.process_no = s.process_no OFFSET 0
            )
        ORDER BY coalesce(s.order_time, s.scheduled_time), s.task_id
        LIMIT %(limit)s::bigint
        FOR NO KEY UPDATE OF p, s SKIP LOCKED
    ) AS d
),

-- include captured

-- include started_with_values

-- include taken

-- include with_timers
