-- put, third: its timer; that of a broken process is held.
WITH task AS (
    INSERT INTO progressor.tasks (process_no, task_type, status, scheduled_time)
    SELECT
        %(process_no)s::bigint, %(timer_type)s::text::progressor.task_type, 'waiting',
        coalesce(
            %(timer_at)s::timestamptz,
            coalesce(%(now)s::timestamptz, now()) + %(delay)s::bigint * interval '1 microsecond'
        )
    RETURNING process_no, task_id, task_type, scheduled_time
)

INSERT INTO progressor.schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
SELECT
    process_no, task_id, %(namespace_no)s::bigint, task_type, scheduled_time,
    %(status)s::text <> 'error'
FROM task
RETURNING scheduled_time
