-- sweep into an archive, third: the tasks that have expired of these processes, each from its first to its last.
SELECT
    p.process_id, p.created_at AS born, t.task_id, t.task_type, t.status, t.name, t.args, t.context, t.response, t.error,
    t.idempotency_key, t.request_hash, t.scheduled_time, t.running_time, t.finished_time, t.attempts_count,
    t.zombie_count, t.last_retry_interval, t.worker_id, t.expires_at, t.priority,
    t.trace
FROM unnest(%(process_no)s::bigint[], %(first)s::bigint[], %(last)s::bigint[])
AS i (process_no, first, last)
CROSS JOIN LATERAL (
    SELECT p.process_no, p.process_id, p.created_at, p.corrupted_by
    FROM progressor.processes AS p
    WHERE p.process_no = i.process_no
    OFFSET 0
) AS p
CROSS JOIN LATERAL (
    SELECT t.*
    FROM progressor.tasks AS t
    WHERE
        t.process_no = p.process_no
        AND t.task_id BETWEEN i.first AND i.last
        AND (
            -- include has_expired
        )
    OFFSET 0
) AS t
