-- Claim one task by its id, if it is the next of its process and due.
-- Row locks skip what others hold, so a claim never waits; the row in running comes first, and only what
-- was captured leaves the schedule.
WITH due AS MATERIALIZED (
    SELECT s.namespace, s.process_id, s.task_id, s.task_type
    FROM schedule AS s
    JOIN processes AS p ON p.namespace = ANY (ARRAY[s.namespace])
    AND p.process_id = ANY (ARRAY[s.process_id])
    WHERE
        s.namespace = %(namespace)s::text AND s.process_id = %(process_id)s::text
        AND s.task_id = %(task_id)s::bigint AND s.claimable
        AND s.scheduled_time <= coalesce(%(now)s::timestamptz, now())
        AND NOT EXISTS (SELECT FROM namespaces AS n WHERE n.name = %(namespace)s::text AND n.paused)
    FOR NO KEY UPDATE OF p, s SKIP LOCKED
),

captured AS (
    INSERT INTO running (
        namespace, process_id, task_id, task_type, worker_id, lease, running_time
    )
    SELECT
        namespace, process_id, task_id, task_type, %(worker_id)s::text, %(lease)s::bigint,
        coalesce(%(now)s::timestamptz, clock_timestamp())
    FROM due
    ON CONFLICT DO NOTHING
    RETURNING namespace, process_id, task_id, running_time
),

started AS (
    UPDATE tasks AS t
    SET
        status = 'running', running_time = c.running_time,
        worker_id = %(worker_id)s::text, lease = %(lease)s::bigint
    FROM captured AS c
    WHERE
        t.namespace = ANY (ARRAY[c.namespace]) AND t.process_id = ANY (ARRAY[c.process_id])
        AND t.task_id = c.task_id
    RETURNING t.namespace, t.process_id, t.task_id
)

DELETE FROM schedule AS s
USING started AS c
WHERE
    s.namespace = ANY (ARRAY[c.namespace]) AND s.process_id = ANY (ARRAY[c.process_id])
    AND s.task_id = c.task_id
