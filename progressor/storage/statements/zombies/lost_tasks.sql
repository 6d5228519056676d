-- collect_zombies, second, behind the locks: the earlier tries and losses of the zombies' tasks.
SELECT
    i.process_no, t.name, t.timer_args, t.scheduled_time, t.attempts_count, t.last_retry_interval,
    t.zombie_count
FROM unnest(%(process_no)s::bigint[], %(task_id)s::bigint[]) AS i (process_no, task_id)
CROSS JOIN LATERAL (
    SELECT
        t.name, t.scheduled_time, t.attempts_count, t.last_retry_interval, t.zombie_count,
        CASE WHEN t.task_type IN ('timeout', 'remove') THEN t.args END AS timer_args
    FROM progressor.tasks AS t
    WHERE t.process_no = i.process_no AND t.task_id = i.task_id
    OFFSET 0
) AS t
