started AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'running', running_time = d.running_time,
        worker_id = %(worker_id)s::bigint, lease = %(lease)s::bigint
    FROM due AS d
    WHERE t.process_no = ANY (ARRAY[d.process_no]) AND t.task_id = d.task_id
    RETURNING
        d.process_id, t.process_no, t.task_id, t.task_type, t.name, t.reply_to,
        t.idempotency_key, t.scheduled_time, t.running_time, t.last_retry_interval, t.attempts_count,
        t.worker_id, t.lease, t.request_hash, t.expires_at, t.trace,
        d.namespace_no, d.status, d.previous_status, d.status_changed_at, d.created_at, d.detail,
        d.metadata, d.corrupted_by, d.last_event_id, d.birth, d.group_no,
        -- Large values are left to large_values.
        CASE WHEN octet_length(t.args) <= 65536 THEN t.args END AS args,
        CASE WHEN octet_length(t.context) <= 65536 THEN t.context END AS context,
        CASE WHEN octet_length(d.aux_state) <= 65536 THEN d.aux_state END AS aux_state,
        greatest(octet_length(t.args), octet_length(t.context), octet_length(d.aux_state)) > 65536 AS is_large,
        -- A step has changed the process, or its timers, after this statement began and before it locked them:
        -- those that it reads are the timers of before. What is older than any open transaction is not looked
        -- up.
        least(age(d.version), age(d.task_version)) <= (
            SELECT pg_current_xact_id()::text::bigint - pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        ) AND NOT EXISTS (
            SELECT
            FROM progressor.processes AS p
            JOIN progressor.schedule AS s ON s.process_no = p.process_no AND s.task_id = d.task_id
            WHERE p.process_no = d.process_no AND p.xmin = d.version AND s.xmin = d.task_version
            OFFSET 0
        ) AS is_outdated
),
