-- Give running tasks back to the schedule, to be claimed again at once: by a worker that stops before
-- it began them (attempts 0), or by the collector for a worker that died (attempts 1).
WITH given_back AS (
    DELETE FROM running AS r
    USING unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(task_id)s::bigint[], %(lease)s::bigint[]
    ) AS i (namespace, process_id, task_id, lease)
    WHERE
        r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = ANY (ARRAY[i.process_id])
        AND r.task_id = i.task_id AND r.lease = i.lease
    RETURNING
        r.namespace, r.process_id, r.task_id, r.task_type,
        -- A mailbox task goes back to the head of its mailbox; a timer behind any call that waits.
        (
            SELECT min(s.task_id)
            FROM schedule AS s
            WHERE
                s.namespace = ANY (ARRAY[r.namespace]) AND s.process_id = ANY (ARRAY[r.process_id])
                AND s.task_type IN ('init', 'call', 'notify', 'repair')
                AND r.task_type IN ('timeout', 'remove')
        ) AS call_id
),

task AS (
    UPDATE tasks AS t
    SET
        status = 'waiting', running_time = NULL, worker_id = NULL, lease = NULL,
        attempts_count = t.attempts_count + %(attempts)s::bigint
    FROM given_back AS g
    WHERE
        t.namespace = ANY (ARRAY[g.namespace]) AND t.process_id = ANY (ARRAY[g.process_id])
        AND t.task_id = g.task_id
    RETURNING
        g.namespace, g.process_id, g.task_id, g.task_type, g.call_id,
        t.scheduled_time, t.metadata ->> 'reply_to' AS reply_to
),

scheduled AS (
    INSERT INTO schedule (
        namespace, process_id, task_id, task_type, status, scheduled_time, claimable
    )
    SELECT
        namespace, process_id, task_id, task_type,
        CASE WHEN call_id IS NULL THEN 'waiting' ELSE 'blocked' END,
        scheduled_time, call_id IS NULL
    FROM task
),

head AS (
    UPDATE schedule AS s
    SET claimable = TRUE
    FROM task AS t
    WHERE
        s.namespace = ANY (ARRAY[t.namespace])
        AND s.process_id = ANY (ARRAY[t.process_id]) AND s.task_id = t.call_id
)

SELECT namespace, process_id, task_id, task_type, reply_to FROM task
