-- Put running tasks back to the schedule: those that a worker did not begin (`lost` is NULL), that lost their
-- 'worker', or that began and lost the 'transaction' of their handler, or of their save in a fail-over. That is no
-- attempt of a timer: an outage must not use those up. What has begun goes on, however late: a request with a try
-- does not expire, and a timer that recurs is marked. They can be claimed again at their own times, which have
-- passed, or after a delay, for which a request is held at the head of its mailbox; then requests of a group wait
-- for room there, at the place that they had.
WITH given_back AS (
    DELETE FROM progressor.running AS r
    USING
        unnest(
            %(process_no)s::bigint[], %(task_id)s::bigint[], %(lease)s::bigint[], %(delay)s::bigint[],
            %(detail)s::text[]
        ) AS i (process_no, task_id, lease, delay, detail)
    WHERE
        r.process_no = ANY (ARRAY[i.process_no])
        AND r.task_id = i.task_id AND r.lease = i.lease
    RETURNING
        r.process_no, r.task_id, r.task_type, i.delay * interval '1 microsecond' AS delay, i.detail,
        -- A request goes back to the head of its mailbox, a timer behind any call that waits.
        CASE WHEN r.task_type IN ('timeout', 'remove') THEN (
            SELECT s.task_id
            FROM progressor.schedule AS s
            WHERE
                s.process_no = r.process_no AND s.task_id > r.task_id
                AND s.task_type IN ('init', 'call', 'notify', 'repair')
            ORDER BY s.task_id
            LIMIT 1
        ) END AS call_id
),

-- The earliest of its other timers, behind a timer that goes back.
waiting AS MATERIALIZED (
    SELECT g.*, head.task_id AS head_id, head.scheduled_time AS head_due, p.namespace_no, p.group_no
    FROM given_back AS g
    CROSS JOIN LATERAL (
        SELECT p.namespace_no, p.group_no
        FROM progressor.processes AS p
        WHERE p.process_no = g.process_no
        OFFSET 0
    ) AS p
    LEFT JOIN LATERAL (
        SELECT s.task_id, s.scheduled_time
        FROM progressor.schedule AS s
        WHERE
            s.process_no + 0 = g.process_no AND s.task_type IN ('timeout', 'remove')
            AND g.task_type IN ('timeout', 'remove')
        ORDER BY s.scheduled_time, s.task_id
        LIMIT 1
    ) AS head ON TRUE
),

task AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'waiting', running_time = NULL, worker_id = NULL, lease = NULL,
        attempts_count = nullif(
            coalesce(t.attempts_count, 0) + CASE %(lost)s::text
                WHEN 'worker' THEN 1
                WHEN 'transaction' THEN (g.task_type NOT IN ('timeout', 'remove'))::integer
                ELSE 0
            END, 0
        ),
        zombie_count = nullif(
            coalesce(t.zombie_count, 0) + CASE %(lost)s::text WHEN 'worker' THEN 1 ELSE 0 END, 0
        ),
        args = CASE
            WHEN %(lost)s::text = 'transaction' AND g.task_type IN ('timeout', 'remove')
                THEN decode(replace(encode(t.args, 'escape'), '"begun":false', '"begun":true'), 'escape')
            ELSE t.args
        END,
        scheduled_time = CASE
            WHEN g.delay IS NOT NULL AND g.task_type IN ('timeout', 'remove')
                THEN coalesce(%(now)s::timestamptz, now()) + g.delay
            ELSE t.scheduled_time
        END,
        last_retry_interval = coalesce(g.delay, t.last_retry_interval),
        error = coalesce(g.detail, t.error)
    FROM waiting AS g
    WHERE t.process_no = ANY (ARRAY[g.process_no]) AND t.task_id = g.task_id
    RETURNING
        g.process_no, g.task_id, g.task_type, t.scheduled_time, t.reply_to, t.priority,
        CASE WHEN g.task_type IN ('timeout', 'remove') THEN coalesce(t.name, '') ELSE '' END AS timer,
        g.namespace_no,
        CASE
            WHEN g.task_type NOT IN ('timeout', 'remove') THEN coalesce(%(now)s::timestamptz, now()) + g.delay
        END AS held_until,
        -- The group in which the task that comes first waits for room, if that is a request.
        CASE
            WHEN g.call_id IS NOT NULL OR g.task_type NOT IN ('timeout', 'remove') THEN g.group_no
        END AS waits_in,
        -- The task that comes before it, if one does.
        coalesce(
            g.call_id, CASE WHEN (g.head_due, g.head_id) < (t.scheduled_time, t.task_id) THEN g.head_id END
        ) AS first_id
),

scheduled AS (
    INSERT INTO progressor.schedule (
        process_no, task_id, namespace_no, task_type, timer, scheduled_time, claimable, order_time, held_time,
        group_no
    )
    SELECT
        s.process_no, s.task_id, s.namespace_no, s.task_type, s.timer, s.scheduled_time,
        s.first_id IS NULL AND s.waits_in IS NULL AND s.held_until IS NULL,
        urgent.order_time,
        CASE
            WHEN s.held_until IS NOT NULL THEN s.held_until
            WHEN s.first_id IS NULL AND s.waits_in IS NOT NULL THEN coalesce(urgent.order_time, s.scheduled_time)
        END,
        CASE WHEN s.first_id IS NULL AND s.held_until IS NULL THEN s.waits_in END
    FROM task AS s
    CROSS JOIN LATERAL (
        SELECT
            CASE WHEN s.task_type NOT IN ('timeout', 'remove') THEN least(
                s.scheduled_time - coalesce(s.priority, 0) * interval '1 minute',
                -- include most_urgent
            ) END AS order_time
    ) AS urgent
),

head AS (
    UPDATE progressor.schedule AS s
    SET
        claimable = t.waits_in IS NULL,
        order_time = CASE WHEN s.task_type NOT IN ('timeout', 'remove') THEN
            -- include most_urgent
        END,
        held_time = CASE WHEN t.waits_in IS NOT NULL THEN
            -- include most_urgent
        END,
        group_no = t.waits_in
    FROM task AS t
    WHERE s.process_no = ANY (ARRAY[t.process_no]) AND s.task_id = t.first_id
)

SELECT process_no, task_id, task_type, reply_to FROM task
