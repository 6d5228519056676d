-- run_bulk, after the lock of its processes: which of them are still as they were when the bulk was made. A
-- process that was repaired and broke again did so later by the clock, and mostly by a later task. The
-- numbers are handed on in prg.locked, with NULL for a process that the bulk must not touch.
SELECT set_config('prg.locked', ARRAY(
    SELECT (
        SELECT p.process_no
        FROM progressor.processes AS p
        WHERE
            p.process_no = i.process_no
            AND p.status = 'error'
            AND p.status_changed_at <= %(until)s::timestamptz
            AND (p.corrupted_by IS NULL OR p.corrupted_by <= %(until_task)s::bigint)
    )
    FROM unnest(%(process_no)s::bigint[]) WITH ORDINALITY AS i (process_no, ord)
    ORDER BY i.ord
)::text, TRUE) AS locked
