-- collect_zombies, where a zombie breaks its process: the task ends in error. The lease goes off the task:
-- whoever held it saved nothing. A timer leaves another one in its place, held and as due as it was.
WITH zombie AS (
    DELETE FROM progressor.running AS r
    USING
        unnest(
            %(process_no)s::bigint[], %(task_id)s::bigint[], %(lease)s::bigint[], %(detail)s::text[]
        ) AS i (process_no, task_id, lease, detail)
    WHERE
        r.process_no = ANY (ARRAY[i.process_no])
        AND r.task_id = i.task_id AND r.lease = i.lease
    RETURNING r.process_no, r.task_id, i.detail
),

process AS (
    UPDATE progressor.processes AS p
    SET
        status = 'error',
        previous_status = CASE WHEN p.status = 'error' THEN p.previous_status ELSE p.status END,
        status_changed_at = CASE
            WHEN p.status = 'error' THEN p.status_changed_at
            ELSE coalesce(%(now)s::timestamptz, now())
        END,
        -- A lost repair leaves the reason why the process broke.
        detail = CASE WHEN p.status = 'error' THEN p.detail ELSE z.detail END,
        corrupted_by = CASE WHEN p.status = 'error' THEN p.corrupted_by ELSE z.task_id END
    FROM zombie AS z
    WHERE p.process_no = ANY (ARRAY[z.process_no])
    RETURNING p.process_no, p.namespace_no, z.task_id, z.detail
),

ended AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'error', finished_time = coalesce(%(now)s::timestamptz, now()),
        error = z.detail, lease = NULL
    FROM process AS z
    WHERE t.process_no = ANY (ARRAY[z.process_no]) AND t.task_id = z.task_id
    RETURNING t.process_no, t.task_id, t.task_type, t.reply_to, t.scheduled_time, z.namespace_no
),

timer AS (
    SELECT
        e.process_no, nextval('progressor.tasks_task_id_seq') AS task_id, e.namespace_no, e.task_type,
        e.scheduled_time
    FROM ended AS e
    WHERE e.task_type IN ('timeout', 'remove')
),

timer_task AS (
    INSERT INTO progressor.tasks (process_no, task_id, task_type, status, scheduled_time)
    SELECT process_no, task_id, task_type, 'waiting', scheduled_time
    FROM timer
),

held AS (
    INSERT INTO progressor.schedule (
        process_no, task_id, namespace_no, task_type, scheduled_time, claimable
    )
    SELECT process_no, task_id, namespace_no, task_type, scheduled_time, FALSE
    FROM timer
)

SELECT process_no, task_id, task_type, reply_to FROM ended
