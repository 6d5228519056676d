-- import, fourth: insert its tasks. What ran is to be run again: it waits.
INSERT INTO progressor.tasks (
    process_no, task_id, task_type, status, name, args, context, response, error, idempotency_key,
    request_hash, scheduled_time, running_time, finished_time, attempts_count, zombie_count,
    last_retry_interval, worker_id, expires_at, priority, trace
)
SELECT
    i.process_no, i.task_id, i.task_type::progressor.task_type, i.status::progressor.task_status, i.name,
    i.args, i.context, i.response, i.error, i.idempotency_key, i.request_hash, i.scheduled_time,
    i.running_time, i.finished_time, i.attempts_count::integer, i.zombie_count::integer,
    i.last_retry_interval * interval '1 microsecond', i.worker_id, i.expires_at, i.priority::integer, i.trace
FROM unnest(
    %(process_no)s::bigint[], %(task_id)s::bigint[], %(task_type)s::text[], %(status)s::text[],
    %(name)s::text[], %(args)s::bytea[], %(context)s::bytea[], %(response)s::bytea[], %(error)s::text[],
    %(idempotency_key)s::text[], %(request_hash)s::bytea[], %(scheduled_time)s::timestamptz[],
    %(running_time)s::timestamptz[], %(finished_time)s::timestamptz[], %(attempts_count)s::bigint[],
    %(zombie_count)s::bigint[], %(last_retry_interval)s::bigint[], %(worker_id)s::bigint[],
    %(expires_at)s::timestamptz[], %(priority)s::bigint[], %(trace)s::text[]
) AS i (
    process_no, task_id, task_type, status, name, args, context, response, error, idempotency_key,
    request_hash, scheduled_time, running_time, finished_time, attempts_count, zombie_count,
    last_retry_interval, worker_id, expires_at, priority, trace
)
