-- put, third: its timer.
WITH task AS (
    INSERT INTO tasks (namespace, process_id, task_type, status, scheduled_time)
    SELECT
        %(namespace)s::text, %(process_id)s::text, %(timer_type)s::text, 'waiting',
        coalesce(
            %(timer_at)s::timestamptz,
            coalesce(%(now)s::timestamptz, now()) + %(delay)s::bigint * interval '1 microsecond'
        )
    RETURNING namespace, process_id, task_id, task_type, scheduled_time
)

INSERT INTO schedule (
    namespace, process_id, task_id, task_type, status, scheduled_time, claimable
)
SELECT namespace, process_id, task_id, task_type, 'waiting', scheduled_time, TRUE
FROM task
RETURNING scheduled_time
