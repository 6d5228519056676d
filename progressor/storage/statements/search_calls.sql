-- Claim the oldest waiting init, call, notify and repair tasks of processes on which nothing runs.
-- Row locks skip what others hold, so a claim never waits; the row in running comes first, and only what
-- was captured leaves the schedule. Repeated after a lost answer, it takes no more than was asked for.
WITH due AS MATERIALIZED (
    SELECT s.process_no, s.task_id, s.task_type
    FROM progressor.schedule AS s
    JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[s.process_no])
    WHERE
        s.namespace_no = (
            SELECT n.namespace_no FROM progressor.namespaces AS n
            WHERE n.name = %(namespace)s::text AND NOT n.paused
        )
        AND s.claimable
        AND s.task_type IN ('init', 'call', 'notify', 'repair')
    ORDER BY s.scheduled_time, s.task_id
    LIMIT greatest(0, %(limit)s::bigint - (
        SELECT count(*) FROM progressor.running AS r
        WHERE r.worker_id = %(worker_id)s::bigint AND r.lease = %(lease)s::bigint
    ))
    FOR NO KEY UPDATE OF p, s SKIP LOCKED
),

captured AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
    SELECT
        process_no, task_id, task_type, %(worker_id)s::bigint, %(lease)s::bigint,
        -- When its process was locked: now() may be older than the end of the step before.
        coalesce(%(now)s::timestamptz, clock_timestamp())
    FROM due
    ON CONFLICT DO NOTHING
    RETURNING process_no, task_id, running_time
),

started AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'running', running_time = c.running_time,
        worker_id = %(worker_id)s::bigint, lease = %(lease)s::bigint
    FROM captured AS c
    WHERE t.process_no = ANY (ARRAY[c.process_no]) AND t.task_id = c.task_id
    RETURNING t.process_no, t.task_id
)

DELETE FROM progressor.schedule AS s
USING started AS c
WHERE s.process_no = ANY (ARRAY[c.process_no]) AND s.task_id = c.task_id
