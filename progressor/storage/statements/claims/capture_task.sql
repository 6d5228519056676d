-- Claim one task by its id, if it is the next of its process and, if it is a timer, due.
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
            s.process_no = %(process_no)s::bigint AND s.task_id = %(task_id)s::bigint
            -- Requests wait for no time: a clock that was set back must not delay them.
            AND (
                s.task_type NOT IN ('timeout', 'remove')
                OR s.scheduled_time <= coalesce(%(now)s::timestamptz, now())
            )
            AND p.group_no IS NULL
            -- A number from before a promotion may be that of a process of another namespace.
            AND
                -- include claimable
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
