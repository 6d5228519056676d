-- After a claim that PostgreSQL refused because of one row, second: claim one task by its id, if it is the
-- next of its process and due, without reading a value of it. Captures as `capture_task` does.
-- Row locks skip rows that others hold, so a claim never waits, and what it reads is what it locked. The row
-- in running is written first; only tasks that were captured leave the schedule.
WITH due AS MATERIALIZED (
    SELECT
        d.process_no,
        d.task_id,
        d.task_type,
        -- When its process was locked: now() may be older than the end of the step before.
        coalesce(%(now)s::timestamptz, clock_timestamp()) AS running_time
    FROM (
        SELECT p.process_no, s.task_id, s.task_type
        FROM progressor.schedule AS s
        JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[s.process_no])
        WHERE
            s.process_no = %(process_no)s::bigint AND s.task_id = %(task_id)s::bigint
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

started AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'running', running_time = d.running_time,
        worker_id = %(worker_id)s::bigint, lease = %(lease)s::bigint
    FROM due AS d
    WHERE t.process_no = ANY (ARRAY[d.process_no]) AND t.task_id = d.task_id
    RETURNING t.process_no, t.task_id
),

-- include taken

SELECT process_no, task_id FROM started
