-- run_bulk, after the lock of its processes: which of them are still as they were when the bulk was made. A
-- process that was repaired and broke again did so later by the clock, and mostly by a later task. The
-- numbers are handed on in prg.locked, with NULL for a process that the bulk must not touch.
-- A dry run is in the way of a repair and mends nothing: the round ends before the first process that has one,
-- and the next round begins with that. `up_to` is how many come before it.
WITH item AS MATERIALIZED (
    SELECT i.ord, p.process_no, dry.is_dry
    FROM unnest(%(process_no)s::bigint[]) WITH ORDINALITY AS i (process_no, ord)
    LEFT JOIN LATERAL (
        SELECT p.process_no
        FROM progressor.processes AS p
        WHERE
            p.process_no = i.process_no
            AND p.status = 'error'
            AND p.status_changed_at <= %(until)s::timestamptz
            AND (p.corrupted_by IS NULL OR p.corrupted_by <= %(until_task)s::bigint)
        OFFSET 0
    ) AS p ON TRUE
    LEFT JOIN LATERAL (
        SELECT TRUE AS is_dry
        FROM (
            SELECT r.task_id FROM progressor.running AS r WHERE r.process_no = p.process_no
            UNION ALL
            SELECT s.task_id
            FROM progressor.schedule AS s
            WHERE s.process_no = p.process_no AND s.task_type IN ('init', 'call', 'notify', 'repair')
        ) AS busy
        CROSS JOIN LATERAL (
            SELECT
            FROM progressor.tasks AS t
            WHERE
                t.process_no = p.process_no AND t.task_id = busy.task_id
                AND t.task_type = 'repair' AND t.name = 'dry_run'
            OFFSET 0
        ) AS t
        LIMIT 1
    ) AS dry ON TRUE
),

first AS MATERIALIZED (
    SELECT coalesce(min(i.ord) FILTER (WHERE i.is_dry) - 1, count(*)) AS up_to FROM item AS i
)

SELECT
    f.up_to,
    set_config('prg.locked', ARRAY(
        SELECT CASE WHEN i.ord <= f.up_to THEN i.process_no END FROM item AS i ORDER BY i.ord
    )::text, TRUE) AS locked
FROM first AS f
