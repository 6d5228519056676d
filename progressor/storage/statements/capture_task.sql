-- Claim one task by its id, if it is the next of its process and due.
-- Row locks skip what others hold, so a claim never waits; the row in running comes first, and only what
-- was captured leaves the schedule.
WITH due AS MATERIALIZED (
    SELECT s.process_no, s.task_id, s.task_type
    FROM progressor.schedule AS s
    JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[s.process_no])
    WHERE
        s.process_no = %(process_no)s::bigint AND s.task_id = %(task_id)s::bigint AND s.claimable
        AND s.scheduled_time <= coalesce(%(now)s::timestamptz, now())
        AND s.namespace_no <> ALL (
            ARRAY(SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.paused)
        )
    FOR NO KEY UPDATE OF p, s SKIP LOCKED
),

captured AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
    SELECT
        process_no, task_id, task_type, %(worker_id)s::bigint, %(lease)s::bigint,
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
