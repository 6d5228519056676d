-- Steps that succeed change several timers each: those of these names are cancelled, and new ones set. This
-- comes before the statement that ends the steps, while their running rows, the fence, are still held. None
-- may be claimed until that statement lets the earliest.
--
--   change                             one change: the timer that it ends, and the one that it sets
--   cancelled_timer, new_timer_task    the tasks that ended or are new
--   unscheduled                        the timers that leave the schedule
--
-- The new ones are put into the schedule last.
WITH change AS MATERIALIZED (
    SELECT
        i.process_no,
        i.timer,
        i.timer_type::progressor.task_type AS new_timer_type,
        i.timer_args,
        i.trace,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
        coalesce(
            i.timer_at,
            coalesce(%(now)s::timestamptz, statement_timestamp()) + i.delay * interval '1 microsecond'
        ) AS due,
        CASE WHEN i.timer_type IS NOT NULL THEN nextval('progressor.tasks_task_id_seq') END AS new_timer_id,
        p.namespace_no,
        old_timer.place AS old_timer_place,
        old_timer.task_id AS old_timer_id
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[],
        %(timer)s::text[], %(timer_type)s::text[], %(timer_at)s::timestamptz[], %(timer_args)s::bytea[],
        %(delay)s::bigint[], %(timer_trace)s::text[]
    ) AS i (process_no, task_id, worker_id, lease, timer, timer_type, timer_at, timer_args, delay, trace)
    -- include held
    CROSS JOIN LATERAL (
        SELECT p.namespace_no
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no
        OFFSET 0
    ) AS p
    LEFT JOIN LATERAL (
        SELECT s.ctid AS place, s.task_id
        FROM progressor.schedule AS s
        WHERE s.process_no + 0 = i.process_no AND s.timer = i.timer AND s.task_type IN ('timeout', 'remove')
        OFFSET 0
    ) AS old_timer ON TRUE
),

cancelled_timer AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'cancelled', finished_time = i.now,
        error = CASE WHEN i.new_timer_type IS NULL THEN 'timer unset' ELSE 'timer replaced' END
    FROM change AS i
    WHERE
        i.old_timer_id IS NOT NULL
        AND t.ctid = (
            SELECT o.ctid FROM progressor.tasks AS o
            WHERE o.process_no = i.process_no AND o.task_id = i.old_timer_id
        )
),

new_timer_task AS (
    INSERT INTO progressor.tasks (process_no, task_id, task_type, name, args, status, scheduled_time, trace)
    SELECT process_no, new_timer_id, new_timer_type, nullif(timer, ''), timer_args, 'waiting', due, trace
    FROM change
    WHERE new_timer_id IS NOT NULL
),

unscheduled AS (
    DELETE FROM progressor.schedule AS s
    USING change AS i
    WHERE s.ctid = i.old_timer_place
    RETURNING s.task_id
)

INSERT INTO progressor.schedule (
    process_no, task_id, namespace_no, task_type, timer, scheduled_time, claimable
)
SELECT process_no, new_timer_id, namespace_no, new_timer_type, timer, due, FALSE
FROM change
WHERE
    new_timer_id IS NOT NULL
    -- The old timer must be deleted first: a process has one timer of a name.
    AND (SELECT count(*) FROM unscheduled) >= 0
