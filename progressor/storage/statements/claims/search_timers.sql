-- Claim the timers that are due, earliest first, of processes on which nothing runs and no call waits.
-- Row locks skip rows that others hold, so a claim never waits, and what it reads is what it locked. The row
-- in running is written first; only tasks that were captured leave the schedule.
WITH due AS MATERIALIZED (
    SELECT
        d.*,
        -- When its process was locked: now() may be older than the end of the step before.
        coalesce(%(now)s::timestamptz, clock_timestamp()) AS running_time
    FROM (
        SELECT p.*, s.task_id, s.task_type
        FROM progressor.schedule AS s
        JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[s.process_no])
        WHERE
            s.namespace_no = (
                SELECT n.namespace_no FROM progressor.namespaces AS n
                WHERE n.name = %(namespace)s::text AND NOT n.paused
            )
            AND s.claimable
            AND s.task_type IN ('timeout', 'remove')
            AND s.scheduled_time <= coalesce(%(now)s::timestamptz, now())
            -- `claimable` means that nothing runs. If it is ever wrong, no other process is harmed.
            AND NOT EXISTS (
                SELECT FROM progressor.running AS r WHERE r.process_no = s.process_no OFFSET 0
            )
        ORDER BY s.scheduled_time, s.task_id
        LIMIT %(limit)s::bigint
        FOR NO KEY UPDATE OF p, s SKIP LOCKED
    ) AS d
),

captured AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
    SELECT
        process_no, task_id, task_type, %(worker_id)s::bigint, %(lease)s::bigint, running_time
    FROM due
),

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
        t.worker_id, t.lease, t.request_hash,
        d.namespace_no, d.status, d.previous_status, d.status_changed_at, d.created_at, d.detail,
        d.metadata, d.corrupted_by, d.last_event_id, d.birth,
        -- Large values are left to large_values.
        CASE WHEN octet_length(t.args) <= 65536 THEN t.args END AS args,
        CASE WHEN octet_length(t.context) <= 65536 THEN t.context END AS context,
        CASE WHEN octet_length(d.aux_state) <= 65536 THEN d.aux_state END AS aux_state,
        greatest(octet_length(t.args), octet_length(t.context), octet_length(d.aux_state)) > 65536 AS is_large
),

taken AS (
    DELETE FROM progressor.schedule AS s
    USING started AS c
    WHERE s.process_no = ANY (ARRAY[c.process_no]) AND s.task_id = c.task_id
)

SELECT %(namespace)s::text AS namespace, c.*, NULL AS timer_type, NULL AS timer_due
FROM started AS c
ORDER BY c.scheduled_time, c.task_id
