-- Delete processes and all their rows, and say whom to tell. With a task_id it is the end of that step,
-- if its running row, the fence, is still held: that row and the task's stay for save_result, which comes
-- next. The process's number is then kept for a day, with the task and the answers of the last day: a
-- caller may not have read its own yet, and a start asked again must not begin a second life. Where nobody
-- can ask, as for a timer's, minutes will do: a save that is repeated after a lost answer looks for it.
-- Without a task_id somebody wants the process forgotten, keys and all; if it has ended by a step of its own
-- meanwhile there is nothing to forget, and what that step kept stays.
WITH item AS MATERIALIZED (
    SELECT i.*
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[]
    ) AS i (process_no, task_id, worker_id, lease)
    WHERE
        (
            i.task_id IS NULL
            AND EXISTS (SELECT FROM progressor.processes AS p WHERE p.process_no = i.process_no OFFSET 0)
        )
        OR EXISTS (
            SELECT FROM progressor.running AS r
            WHERE
                r.process_no = i.process_no AND r.task_id = i.task_id AND r.lease = i.lease
                AND r.worker_id IS NOT DISTINCT FROM i.worker_id
            OFFSET 0
        )
),

process AS (
    DELETE FROM progressor.processes AS p
    USING item AS i
    WHERE p.process_no = ANY (ARRAY[i.process_no])
    RETURNING p.process_no, p.namespace_no, p.process_id, i.task_id
),

kept AS (
    INSERT INTO progressor.removed_processes (process_no, kept_until, namespace, process_id)
    SELECT
        p.process_no,
        coalesce(%(now)s::timestamptz, now()) + CASE
            WHEN EXISTS (
                SELECT FROM progressor.tasks AS t
                WHERE
                    t.process_no + 0 = p.process_no AND t.idempotency_key IS NOT NULL
                    AND (
                        t.task_id = p.task_id
                        OR t.finished_time >= coalesce(%(now)s::timestamptz, now()) - interval '1 day'
                    )
                OFFSET 0
            ) THEN interval '1 day'
            ELSE interval '10 minutes'
        END,
        n.name,
        p.process_id
    FROM process AS p
    JOIN progressor.namespaces AS n ON n.namespace_no = ANY (ARRAY[p.namespace_no])
    WHERE p.task_id IS NOT NULL
),

event AS (
    DELETE FROM progressor.events AS e
    USING item AS i
    WHERE e.process_no = ANY (ARRAY[i.process_no])
),

waiting AS (
    DELETE FROM progressor.schedule AS s
    USING item AS i
    WHERE s.process_no = ANY (ARRAY[i.process_no])
),

step AS (
    DELETE FROM progressor.running AS r
    USING item AS i
    WHERE i.task_id IS NULL AND r.process_no = ANY (ARRAY[i.process_no])
)

DELETE FROM progressor.tasks AS t
USING item AS i
WHERE
    t.process_no = ANY (ARRAY[i.process_no])
    AND t.task_id IS DISTINCT FROM i.task_id
    AND (
        i.task_id IS NULL OR t.idempotency_key IS NULL OR t.finished_time IS NULL
        OR t.finished_time < coalesce(%(now)s::timestamptz, now()) - interval '1 day'
    )
RETURNING
    t.process_no, t.task_id,
    CASE WHEN t.status IN ('waiting', 'running') THEN t.reply_to END AS reply_to
