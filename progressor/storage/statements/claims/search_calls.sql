-- Claim the next waiting init, call, notify and repair tasks of processes on which nothing runs, by the
-- order of their times and priorities.
-- Row locks skip rows that others hold, so a claim never waits, and what it reads is what it locked. The row
-- in running is written first; only tasks that were captured leave the schedule.
WITH due AS MATERIALIZED (
    SELECT
        d.*,
        -- When its process was locked: now() may be older than the end of the step before.
        coalesce(%(now)s::timestamptz, clock_timestamp()) AS running_time
    FROM (
        SELECT
            -- include due_columns
        FROM progressor.schedule AS s
        JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[s.process_no])
        WHERE
            -- include claimable
            AND s.task_type IN ('init', 'call', 'notify', 'repair')
        ORDER BY coalesce(s.order_time, s.scheduled_time), s.task_id
        LIMIT %(limit)s::bigint
        FOR NO KEY UPDATE OF p, s SKIP LOCKED
    ) AS d
    -- [rated
    -- include admitted
    -- rated]
),

-- [rated
-- include charged
-- rated]
-- include captured

-- include started_with_values

-- include taken

-- include with_timers
