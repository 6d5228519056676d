-- simple_repair, after the lock: back to running without a handler. The first of the held timers may be
-- claimed again, at its own time. A process that broke in its init is back in init: that task waits again,
-- with its arguments and its key, and the timer behind it. restart_init does the same for repairs with a
-- handler.
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        p.*,
        nextval('progressor.tasks_task_id_seq') AS task_id,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
    FROM (
        SELECT
            i.*,
            ((SELECT current_setting('prg.locked')::bigint[]))[i.ord] AS process_no
        FROM unnest(
            %(namespace)s::text[], %(process_id)s::text[], %(name)s::text[],
            %(idempotency_key)s::text[], %(request_hash)s::bytea[], %(context)s::bytea[],
            %(lease)s::bigint[]
        ) WITH ORDINALITY AS i (
            namespace, process_id, name, idempotency_key, request_hash, context, lease, ord
        )
    ) AS i
    CROSS JOIN LATERAL (
        SELECT
            p.ctid AS place, p.namespace_no, p.group_no,
            CASE WHEN p.previous_status = 'init' THEN p.corrupted_by END AS init_id
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no AND p.status = 'error'
        OFFSET 0
    ) AS p
    WHERE
        -- include idle_and_new
),

process AS (
    UPDATE progressor.processes AS p
    SET
        status = CASE WHEN i.init_id IS NULL THEN 'running' ELSE 'init' END::progressor.process_status,
        previous_status = 'error', status_changed_at = i.now,
        detail = NULL, corrupted_by = NULL, rests_until = NULL
    FROM item AS i
    WHERE p.ctid = i.place
),

repair_task AS (
    INSERT INTO progressor.tasks (
        process_no, task_id, task_type, status, scheduled_time, running_time, finished_time,
        name, idempotency_key, request_hash, context, lease, trace
    )
    SELECT
        process_no, task_id, 'repair', 'finished', now, now, now,
        name, idempotency_key, request_hash, context, lease, (%(trace)s::text[])[ord]
    FROM item
),

init_task AS (
    -- include init_waits_again
),

init_waits AS (
    INSERT INTO progressor.schedule (
        process_no, task_id, namespace_no, task_type, scheduled_time, claimable, order_time, held_time,
        group_no
    )
    SELECT
        i.process_no, i.init_id, i.namespace_no, 'init', i.now, i.group_no IS NULL,
        i.now - t.priority * interval '1 minute',
        CASE WHEN i.group_no IS NOT NULL THEN coalesce(i.now - t.priority * interval '1 minute', i.now) END,
        i.group_no
    FROM item AS i
    JOIN init_task AS t ON t.process_no = i.process_no
)

UPDATE progressor.schedule AS s
SET claimable = TRUE
FROM item AS i
WHERE
    i.init_id IS NULL
    AND s.ctid = (
        SELECT t.ctid FROM progressor.schedule AS t
        WHERE t.process_no + 0 = i.process_no AND t.task_type IN ('timeout', 'remove')
        ORDER BY t.scheduled_time, t.task_id
        LIMIT 1
    )
