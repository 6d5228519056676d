-- put, first: insert the process if the id is free, and the record of the import: a finished init task.
-- One row, whose numbers are NULL if nothing was made.
WITH process AS (
    INSERT INTO progressor.processes (
        namespace_no, process_id, status, status_changed_at, created_at, detail, aux_state, metadata,
        last_event_id, birth
    )
    SELECT
        n.namespace_no, %(process_id)s::text, %(status)s::text::progressor.process_status, at.now, at.now,
        %(detail)s::text, %(aux_state)s::bytea, %(process_metadata)s::text::jsonb,
        %(last_event_id)s::bigint, %(birth)s::bigint
    FROM
        progressor.namespaces AS n,
        (SELECT coalesce(%(now)s::timestamptz, now()) AS now) AS at
    WHERE n.name = %(namespace)s::text
    ON CONFLICT DO NOTHING
    RETURNING process_no, namespace_no, created_at
),

task AS (
    INSERT INTO progressor.tasks (
        process_no, task_type, status, scheduled_time, running_time, finished_time, name, idempotency_key
    )
    SELECT
        process_no, 'init', 'finished', created_at, created_at, created_at, 'put', %(idempotency_key)s::text
    FROM process
    RETURNING process_no, task_id
)

SELECT
    EXISTS (SELECT FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text) AS is_served,
    (SELECT p.process_no FROM process AS p) AS process_no,
    (SELECT t.task_id FROM task AS t) AS task_id,
    (SELECT p.namespace_no FROM process AS p) AS namespace_no
