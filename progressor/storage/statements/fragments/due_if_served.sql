-- Of the tasks that were looked at, those whose functions are not left to other workers; locked.
served AS MATERIALIZED (
    SELECT l.process_no, l.task_id
    FROM looked AS l
    CROSS JOIN LATERAL (
        SELECT
            CASE
                WHEN t.name IS NULL OR t.task_type IN ('remove', 'repair') THEN t.task_type::text
                WHEN t.task_type = 'timeout' THEN 'timeout ' || t.name
                ELSE 'call ' || t.name
            END AS function
        FROM progressor.tasks AS t
        WHERE t.process_no = l.process_no AND t.task_id = l.task_id
        OFFSET 0
    ) AS t
    WHERE t.function <> ALL (%(left)s::text[])
),

due AS MATERIALIZED (
    SELECT
        d.*,
        -- When its process was locked: now() may be older than the end of the step before.
        coalesce(%(now)s::timestamptz, clock_timestamp()) AS running_time
    FROM (
        SELECT
            -- include due_columns
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
            -- queue_timers has timers of groups wait for room.
            AND (p.group_no IS NULL OR s.task_type NOT IN ('timeout', 'remove'))
        -- They come in the order of `looked`: nothing is sorted, and the limit ends the reading.
        LIMIT %(limit)s::bigint
        FOR NO KEY UPDATE OF p, s SKIP LOCKED
    ) AS d
    -- [rated
    -- include admitted
    -- rated]
),
