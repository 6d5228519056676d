-- sweep, fourth: the next processes of a walk that have something to delete, locked in the order of their
-- numbers. One that is locked by a step is left to the next walk: this waits for nobody, so nobody waits
-- longer because of it.
--
--   looked  the next processes in the order of their creation
--   young   which tasks are too young to be looked at
--   old     those processes with something to delete: `cut` is the last event to go, 0 if none does; without
--           those that a bulk repairs
--   held    those of these that nobody else holds
WITH looked AS MATERIALIZED (
    SELECT
        p.process_no, p.created_at, p.corrupted_by, p.last_event_id,
        coalesce(p.first_event_id, 1) AS first_event_id
    FROM progressor.processes AS p
    WHERE
        p.namespace_no = %(namespace_no)s::bigint
        AND p.created_at > '-infinity'
        AND (p.created_at, p.process_no) > (%(cursor_at)s::timestamptz, %(cursor_no)s::bigint)
    ORDER BY p.namespace_no, p.created_at, p.process_no
    LIMIT %(looks)s::bigint
),

young AS MATERIALIZED (
    -- include first_young_task
),

old AS MATERIALIZED (
    SELECT p.process_no, p.created_at, e.cut
    FROM looked AS p
    CROSS JOIN young AS y
    CROSS JOIN LATERAL (
        SELECT
            CASE
                WHEN %(events_last)s::bigint IS NOT NULL THEN p.last_event_id - %(events_last)s::bigint
                WHEN %(events_before)s::timestamptz IS NOT NULL THEN coalesce(
                    (
                        SELECT e.event_id - 1
                        FROM progressor.events AS e
                        WHERE
                            e.process_no = p.process_no
                            AND e.event_id BETWEEN p.first_event_id
                            AND p.first_event_id + %(rows)s::bigint - 1
                            AND e.timestamp >= %(events_before)s::timestamptz
                        ORDER BY e.event_id
                        LIMIT 1
                    ),
                    least(p.first_event_id + %(rows)s::bigint - 1, p.last_event_id)
                )
                ELSE 0
            END AS cut
        OFFSET 0
    ) AS e
    WHERE
        (
            e.cut >= p.first_event_id
            OR EXISTS (
                SELECT FROM progressor.tasks AS t
                WHERE
                    t.process_no = p.process_no
                    AND t.task_id <= y.task_id
                    AND (
                        -- include has_expired
                    )
                OFFSET 0
            )
        )
        AND p.process_no <> ALL (ARRAY(SELECT b.process_no FROM progressor.bulk_repairs AS b))
    ORDER BY p.created_at, p.process_no
    LIMIT %(most)s::bigint
),

held AS MATERIALIZED (
    SELECT p.process_no
    FROM progressor.processes AS p
    WHERE p.process_no = ANY (ARRAY(SELECT o.process_no FROM old AS o))
    ORDER BY p.process_no
    FOR NO KEY UPDATE SKIP LOCKED
)

SELECT
    whole.looked, whole.last_at, whole.last_no, o.process_no, o.created_at, o.cut,
    h.process_no IS NOT NULL AS is_held
FROM (
    SELECT
        count(*) AS looked, max(l.created_at) AS last_at,
        (SELECT l.process_no FROM looked AS l ORDER BY l.created_at DESC, l.process_no DESC LIMIT 1) AS last_no
    FROM looked AS l
) AS whole
LEFT JOIN old AS o ON TRUE
LEFT JOIN held AS h ON h.process_no = o.process_no
ORDER BY o.created_at, o.process_no
