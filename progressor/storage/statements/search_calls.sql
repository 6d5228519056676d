-- Claim the oldest waiting init, call, notify and repair tasks of processes on which nothing runs.
-- Row locks skip what others hold, so a claim never waits; the row in running comes first, and only what
-- was captured leaves the schedule. Repeated after a lost answer, it takes no more than was asked for.
WITH due AS MATERIALIZED (
    SELECT s.namespace, s.process_id, s.task_id, s.task_type
    FROM schedule AS s
    JOIN processes AS p ON p.namespace = ANY (ARRAY[s.namespace])
    AND p.process_id = ANY (ARRAY[s.process_id])
    WHERE
        s.namespace = %(namespace)s::text AND s.claimable
        AND s.task_type IN ('init', 'call', 'notify', 'repair')
        AND NOT EXISTS (SELECT FROM namespaces AS n WHERE n.name = %(namespace)s::text AND n.paused)
    ORDER BY s.scheduled_time, s.task_id
    LIMIT greatest(0, %(limit)s::bigint - (
        SELECT count(*) FROM running AS r
        WHERE r.worker_id = %(worker_id)s::text AND r.lease = %(lease)s::bigint
    ))
    FOR NO KEY UPDATE OF p, s SKIP LOCKED
),

captured AS (
    INSERT INTO running (
        namespace, process_id, task_id, task_type, worker_id, lease, running_time
    )
    SELECT
        namespace, process_id, task_id, task_type, %(worker_id)s::text, %(lease)s::bigint,
        -- When its process was locked: now() may be older than the end of the step before.
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
