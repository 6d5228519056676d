-- The answers of processes that are gone, kept for late callers, end after a while, and their numbers with
-- them. A bounded number of processes at once: the next round goes on.
WITH ended AS (
    DELETE FROM progressor.removed_processes AS r
    USING (
        SELECT e.process_no
        FROM progressor.removed_processes AS e
        WHERE e.kept_until < coalesce(%(now)s::timestamptz, now())
        ORDER BY e.kept_until
        LIMIT %(limit)s::bigint
        FOR UPDATE SKIP LOCKED
    ) AS due
    WHERE r.process_no = ANY (ARRAY[due.process_no])
    RETURNING r.process_no
),

dropped AS (
    DELETE FROM progressor.tasks AS t
    USING ended AS e
    WHERE t.process_no = ANY (ARRAY[e.process_no])
)

SELECT count(*) AS processes FROM ended
