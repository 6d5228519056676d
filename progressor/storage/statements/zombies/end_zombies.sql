-- collect_zombies, for zombies that are not tried again: the task ends in error, and its process breaks if
-- the verdict has a status for it; a lost repair has none. The task loses its lease, because its holder
-- saved nothing. A timer leaves another one in its place, held.
--
--   zombie                    the running row, behind its lease
--   process                   the process, which breaks
--   ended                     the task, and its caller
--   timer, timer_task, held   the timer in place of one that broke its process: its type, task and row
WITH zombie AS (
    DELETE FROM progressor.running AS r
    USING
        unnest(
            %(process_no)s::bigint[], %(task_id)s::bigint[], %(lease)s::bigint[], %(detail)s::text[],
            %(status)s::text[], %(timer)s::text[], %(timer_type)s::text[], %(timer_at)s::timestamptz[],
            %(timer_args)s::bytea[]
        ) AS i (process_no, task_id, lease, detail, status, timer, timer_type, timer_at, timer_args)
    WHERE
        r.process_no = ANY (ARRAY[i.process_no])
        AND r.task_id = i.task_id AND r.lease = i.lease
    RETURNING i.*
),

process AS (
    UPDATE progressor.processes AS p
    SET
        status = z.status::progressor.process_status,
        previous_status = p.status,
        status_changed_at = coalesce(%(now)s::timestamptz, now()),
        detail = z.detail,
        corrupted_by = z.task_id
    FROM zombie AS z
    WHERE p.process_no = ANY (ARRAY[z.process_no]) AND z.status IS NOT NULL
),

ended AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'error', finished_time = coalesce(%(now)s::timestamptz, now()),
        error = z.detail, lease = NULL
    FROM zombie AS z
    WHERE t.process_no = ANY (ARRAY[z.process_no]) AND t.task_id = z.task_id
    RETURNING t.process_no, t.task_id, t.reply_to
),

timer AS (
    SELECT
        z.process_no, nextval('progressor.tasks_task_id_seq') AS task_id, p.namespace_no,
        z.timer, z.timer_type::progressor.task_type AS task_type, z.timer_at AS scheduled_time, z.timer_args,
        (
            SELECT t.trace FROM progressor.tasks AS t
            WHERE t.process_no = z.process_no AND t.task_id = z.task_id
        ) AS trace
    FROM zombie AS z
    CROSS JOIN LATERAL (
        SELECT p.namespace_no FROM progressor.processes AS p WHERE p.process_no = z.process_no OFFSET 0
    ) AS p
    WHERE z.timer_type IS NOT NULL
),

timer_task AS (
    INSERT INTO progressor.tasks (process_no, task_id, task_type, name, args, status, scheduled_time, trace)
    SELECT process_no, task_id, task_type, nullif(timer, ''), timer_args, 'waiting', scheduled_time, trace
    FROM timer
),

held AS (
    INSERT INTO progressor.schedule (
        process_no, task_id, namespace_no, task_type, timer, scheduled_time, claimable
    )
    SELECT process_no, task_id, namespace_no, task_type, timer, scheduled_time, FALSE
    FROM timer
)

SELECT process_no, task_id, reply_to FROM ended
