-- Claim the timers that are due, earliest first, of processes on which nothing runs and no call waits.
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
            AND s.task_type IN ('timeout', 'remove')
            AND s.scheduled_time <= coalesce(%(now)s::timestamptz, now())
            -- queue_timers has those of groups wait for room.
            AND p.group_no IS NULL
        ORDER BY s.scheduled_time, s.task_id
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
