-- put, first: insert the process if the id is free, and the record of the import: a finished init task.
WITH process AS (
    INSERT INTO processes (
        namespace, process_id, status, status_changed_at, created_at, detail, aux_state, metadata,
        last_event_id
    )
    SELECT
        %(namespace)s::text, %(process_id)s::text, %(status)s::text, at.now, at.now,
        %(detail)s::text, %(aux_state)s::bytea, %(process_metadata)s::text::jsonb,
        %(last_event_id)s::bigint
    FROM (SELECT coalesce(%(now)s::timestamptz, now()) AS now) AS at
    ON CONFLICT DO NOTHING
    RETURNING namespace, process_id, created_at
)

INSERT INTO tasks (
    namespace, process_id, task_type, status, scheduled_time, running_time, finished_time,
    metadata, idempotency_key
)
SELECT
    namespace, process_id, 'init', 'finished', created_at, created_at, created_at,
    '{"name": "put"}'::jsonb, %(idempotency_key)s::text
FROM process
RETURNING task_id
