-- drop_leftovers, last: forget the numbers of removed processes under which nothing is left, and whose
-- answers were kept long enough. Its snapshot is younger than that of drop_rows, so it sees what is left. It
-- looks at the first ones, as that does: nobody has deleted anything of the others yet.
WITH emptied AS (
    UPDATE progressor.removed_processes AS r
    SET has_events = FALSE
    FROM (
        SELECT h.process_no
        FROM (
            SELECT f.process_no
            FROM progressor.removed_processes AS f
            WHERE f.has_events
            ORDER BY f.process_no
            LIMIT %(limit)s::bigint
        ) AS f
        JOIN progressor.removed_processes AS h ON h.process_no = ANY (ARRAY[f.process_no])
        WHERE
            h.has_events
            AND NOT EXISTS (
                SELECT FROM progressor.events AS e WHERE e.process_no = h.process_no OFFSET 0
            )
        FOR UPDATE OF h SKIP LOCKED
    ) AS i
    WHERE r.process_no = ANY (ARRAY[i.process_no])
),

deserted AS (
    UPDATE progressor.removed_processes AS r
    SET has_requests = FALSE
    FROM (
        SELECT h.process_no
        FROM (
            SELECT f.process_no
            FROM progressor.removed_processes AS f
            WHERE f.has_requests
            ORDER BY f.process_no
            LIMIT %(limit)s::bigint
        ) AS f
        JOIN progressor.removed_processes AS h ON h.process_no = ANY (ARRAY[f.process_no])
        WHERE
            -- Only one part of a statement may change a row.
            h.has_requests AND NOT h.has_events
            AND NOT EXISTS (
                SELECT FROM progressor.schedule AS s WHERE s.process_no = h.process_no OFFSET 0
            )
        FOR UPDATE OF h SKIP LOCKED
    ) AS i
    WHERE r.process_no = ANY (ARRAY[i.process_no])
    RETURNING r.process_no
),

ended AS (
    DELETE FROM progressor.removed_processes AS r
    USING (
        SELECT e.process_no
        FROM progressor.removed_processes AS e
        WHERE e.kept_until < coalesce(%(now)s::timestamptz, now())
        ORDER BY e.kept_until
        LIMIT %(limit)s::bigint
        FOR UPDATE SKIP LOCKED
    ) AS due
    WHERE
        r.process_no = ANY (ARRAY[due.process_no]) AND NOT r.has_events AND NOT r.has_requests
        AND NOT EXISTS (SELECT FROM progressor.tasks AS t WHERE t.process_no = due.process_no OFFSET 0)
    RETURNING r.process_no
)

-- Tasks of processes on which nothing waits any more can be deleted next.
SELECT count(*) = %(limit)s::bigint OR EXISTS (SELECT FROM deserted) AS has_more FROM ended
