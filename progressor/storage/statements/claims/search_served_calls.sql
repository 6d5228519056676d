-- As search_calls, but leave tasks for some functions to other workers. It looks at the first tasks only:
-- behind many that are left, others wait until the workers that serve these have taken them.
--
--   looked, served              the first tasks, and those of them that are not left to others
-- [unrated
--   due, captured               the tasks that are claimed, locked, and written to running
-- unrated]
-- [rated
--   due, charged, captured      the tasks that are claimed, locked, of the rate, and written to running
-- rated]
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

-- include due_if_served

-- [rated
-- include charged
-- rated]
-- include captured

-- include started_with_values

-- include taken

-- include with_timers
