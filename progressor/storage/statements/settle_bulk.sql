-- run_bulk, behind its lock: what came of the repairs that were begun, from the rows of their tasks. Who is
-- gone with all its rows was removed by somebody.
WITH ended AS MATERIALIZED (
    SELECT r.process_no, r.task_id, t.status, t.error, t.is_refused, p.process_id
    FROM progressor.bulk_repairs AS r
    LEFT JOIN LATERAL (
        SELECT t.status, left(t.error, 500) AS error, t.response IS NOT NULL AS is_refused
        FROM progressor.tasks AS t
        WHERE t.process_no = r.process_no AND t.task_id = r.task_id
        OFFSET 0
    ) AS t ON TRUE
    LEFT JOIN LATERAL (
        SELECT p.process_id FROM progressor.processes AS p WHERE p.process_no = r.process_no OFFSET 0
    ) AS p ON TRUE
    WHERE
        r.bulk_id = %(bulk_id)s::bigint
        AND (t.status IS NULL OR t.status IN ('finished', 'error', 'cancelled'))
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
