-- put, third: its timers. The earliest may be claimed; those of a broken process are held.
WITH timer AS MATERIALIZED (
    SELECT
        nextval('progressor.tasks_task_id_seq') AS task_id,
        i.timer,
        i.timer_type::progressor.task_type AS task_type,
        i.timer_args,
        coalesce(
            i.timer_at,
            coalesce(%(now)s::timestamptz, now()) + i.delay * interval '1 microsecond'
        ) AS scheduled_time
    FROM unnest(
        %(timer)s::text[], %(timer_type)s::text[], %(timer_at)s::timestamptz[], %(timer_args)s::bytea[],
        %(delay)s::bigint[]
    ) AS i (timer, timer_type, timer_at, timer_args, delay)
),

task AS (
    INSERT INTO progressor.tasks (process_no, task_id, task_type, name, args, status, scheduled_time)
    SELECT
        %(process_no)s::bigint, task_id, task_type, nullif(timer, ''), timer_args, 'waiting', scheduled_time
    FROM timer
)

INSERT INTO progressor.schedule (
    process_no, task_id, namespace_no, task_type, timer, scheduled_time, claimable
)
SELECT
    %(process_no)s::bigint, task_id, %(namespace_no)s::bigint, task_type, timer, scheduled_time,
    %(status)s::text <> 'error' AND row_number() OVER (ORDER BY scheduled_time, task_id) = 1
FROM timer
RETURNING scheduled_time
