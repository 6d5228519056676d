-- A claim in groups, second: of each group that lock_groups has locked, the tasks that wait longest, as many as
-- it has room for. Row locks skip rows that others hold, so a claim never waits for a step, and what it reads is
-- what it locked.
due AS MATERIALIZED (
    SELECT
        d.*,
        -- When its process was locked: now() may be older than the end of the step before.
        coalesce(%(now)s::timestamptz, clock_timestamp()) AS running_time
    FROM (
        SELECT h.*
        FROM unnest(%(group_no)s::bigint[]) AS l (group_no)
        CROSS JOIN LATERAL (
            -- [unrated
            SELECT g.group_no, g.group_limit FROM progressor.groups AS g WHERE g.group_no = l.group_no OFFSET 0
            -- unrated]
            -- [rated
            SELECT g.* FROM progressor.groups AS g WHERE g.group_no = l.group_no OFFSET 0
            -- rated]
        ) AS g
        -- include room
        -- [rated
        -- include room_by_rate
        -- rated]
        CROSS JOIN LATERAL (
            SELECT
                -- include due_columns
            FROM progressor.schedule AS s
            JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[s.process_no])
            WHERE
                s.namespace_no = (
                    SELECT n.namespace_no FROM progressor.namespaces AS n
                    WHERE n.name = %(namespace)s::text AND NOT n.paused
                )
                AND s.group_no = g.group_no AND s.held_time IS NOT NULL
                -- A held task means that nothing runs. If it is ever wrong, no other process is harmed.
                AND NOT EXISTS (
                    SELECT FROM progressor.running AS r WHERE r.process_no = s.process_no OFFSET 0
                )
            ORDER BY s.held_time, s.task_id
            -- [unrated
            LIMIT room.tasks
            -- unrated]
            -- [rated
            LIMIT least(room.tasks, pace.begins)
            -- rated]
            FOR NO KEY UPDATE OF p, s SKIP LOCKED
        ) AS h
        LIMIT %(limit)s::bigint
    ) AS d
    -- [rated
    -- include admitted
    -- rated]
),

-- [rated
-- include charged
charged_groups AS (
    UPDATE progressor.groups AS r
    SET
        -- include begun
    FROM (
        SELECT
            d.group_no,
            count(*) AS begins,
            max(d.running_time) AS running_time,
            %(group_interval)s::bigint * interval '1 microsecond' AS step,
            %(group_burst)s::bigint AS burst
        FROM due AS d
        GROUP BY d.group_no
    ) AS b
    WHERE r.group_no = ANY (ARRAY[b.group_no]) AND b.step IS NOT NULL
),

-- rated]
captured AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time, group_no)
    SELECT
        process_no, task_id, task_type, %(worker_id)s::bigint, %(lease)s::bigint, running_time, group_no
    FROM due
),
