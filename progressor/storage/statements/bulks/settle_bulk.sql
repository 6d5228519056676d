-- run_bulk, behind its lock: the results of the repairs that were begun, from the rows of their tasks.
-- After a successful repair, an init that broke the process runs anew: then the repair ends when that init,
-- the first task of its process, ends. A process whose tasks are all gone was removed. A repaired process
-- whose request is to be run again waits for that: due_redos finds it.
WITH ended AS MATERIALIZED (
    SELECT
        r.process_no, r.task_id, p.process_id,
        coalesce(anew.status, its.status) AS status,
        CASE WHEN anew.status IS NULL THEN its.error ELSE anew.error END AS error,
        CASE WHEN anew.status IS NULL THEN its.is_refused ELSE anew.is_refused END AS is_refused
    FROM progressor.bulk_repairs AS r
    LEFT JOIN LATERAL (
        SELECT
            t.status, left(t.error, 500) AS error, t.response IS NOT NULL AS is_refused, t.finished_time
        FROM progressor.tasks AS t
        WHERE t.process_no = r.process_no AND t.task_id = r.task_id
        OFFSET 0
    ) AS its ON TRUE
    LEFT JOIN LATERAL (
        SELECT first.*
        FROM (
            SELECT
                t.task_type, t.status, left(t.error, 500) AS error, t.response IS NOT NULL AS is_refused,
                t.running_time
            FROM progressor.tasks AS t
            WHERE t.process_no = r.process_no AND its.status = 'finished'
            ORDER BY t.task_id
            LIMIT 1
        ) AS first
        WHERE
            first.task_type = 'init'
            AND (first.status IN ('waiting', 'running') OR first.running_time >= its.finished_time)
    ) AS anew ON TRUE
    LEFT JOIN LATERAL (
        SELECT p.process_id FROM progressor.processes AS p WHERE p.process_no = r.process_no OFFSET 0
    ) AS p ON TRUE
    WHERE
        r.bulk_id = %(bulk_id)s::bigint
        AND (
            its.status IS NULL
            OR coalesce(anew.status, its.status) IN ('finished', 'error', 'cancelled')
        )
        AND (r.redo_task_id IS NULL OR its.status IS DISTINCT FROM 'finished' OR p.process_id IS NULL)
),

settled AS (
    DELETE FROM progressor.bulk_repairs AS r
    USING ended AS e
    WHERE r.bulk_id = %(bulk_id)s::bigint AND r.process_no = ANY (ARRAY[e.process_no])
)

SELECT
    count(*) FILTER (WHERE status = 'finished') AS repaired,
    count(*) FILTER (WHERE status = 'error' AND is_refused) AS refused,
    count(*) FILTER (WHERE status = 'cancelled' OR status = 'error' AND NOT is_refused) AS failed,
    count(*) FILTER (WHERE status IS NULL) AS removed,
    (
        array_agg(coalesce(process_id, '?') || ': ' || error ORDER BY task_id DESC)
        FILTER (WHERE error IS NOT NULL)
    )[1] AS last_error
FROM ended
