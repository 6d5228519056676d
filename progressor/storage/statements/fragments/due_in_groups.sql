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
            SELECT g.group_no, g.group_limit FROM progressor.groups AS g WHERE g.group_no = l.group_no OFFSET 0
        ) AS g
        -- include room
        CROSS JOIN LATERAL (
            SELECT p.*, s.task_id, s.task_type
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
            LIMIT room.tasks
            FOR NO KEY UPDATE OF p, s SKIP LOCKED
        ) AS h
        LIMIT %(limit)s::bigint
    ) AS d
),

captured AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time, group_no)
    SELECT
        process_no, task_id, task_type, %(worker_id)s::bigint, %(lease)s::bigint, running_time, group_no
    FROM due
),
