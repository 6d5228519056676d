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
            s.process_no = %(process_no)s::bigint AND s.task_id = %(task_id)s::bigint AND s.claimable
            AND (
                s.task_type NOT IN ('timeout', 'remove')
                OR s.scheduled_time <= coalesce(%(now)s::timestamptz, now())
            )
            -- A number from before a promotion may be that of a process of another namespace.
            AND s.namespace_no = (
                SELECT n.namespace_no FROM progressor.namespaces AS n
                WHERE n.name = %(namespace)s::text AND NOT n.paused
            )
            -- `claimable` means that nothing runs. If it is ever wrong, no other process is harmed.
            AND NOT EXISTS (
                SELECT FROM progressor.running AS r WHERE r.process_no = s.process_no OFFSET 0
            )
        FOR NO KEY UPDATE OF p, s SKIP LOCKED
    ) AS d
),

captured AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
    SELECT
        process_no, task_id, task_type, %(worker_id)s::bigint, %(lease)s::bigint, running_time
    FROM due
),

started AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'running', running_time = d.running_time,
        worker_id = %(worker_id)s::bigint, lease = %(lease)s::bigint
    FROM due AS d
    WHERE t.process_no = ANY (ARRAY[d.process_no]) AND t.task_id = d.task_id
    RETURNING t.process_no, t.task_id
),

taken AS (
    DELETE FROM progressor.schedule AS s
    USING started AS c
    WHERE s.process_no = ANY (ARRAY[c.process_no]) AND s.task_id = c.task_id
)

SELECT process_no, task_id FROM started
