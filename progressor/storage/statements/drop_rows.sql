-- drop_leftovers, second: rows of processes that are gone, so many at once: the events of large ones, and the
-- tasks of those whose answers were kept long enough. Their numbers are nobody else's.
WITH ended AS MATERIALIZED (
    SELECT r.process_no
    FROM progressor.removed_processes AS r
    WHERE r.has_events
    ORDER BY r.process_no
    LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
),

forgotten AS MATERIALIZED (
    SELECT r.process_no
    FROM progressor.removed_processes AS r
    WHERE r.kept_until < coalesce(%(now)s::timestamptz, now())
    ORDER BY r.kept_until
    LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
),

event AS (
    DELETE FROM progressor.events AS e
    USING (
        SELECT its.process_no, its.event_id
        FROM ended
        CROSS JOIN LATERAL (
            SELECT e.process_no, e.event_id
            FROM progressor.events AS e
            WHERE e.process_no = ended.process_no
            ORDER BY e.event_id
            LIMIT %(rows)s::bigint
        ) AS its
        LIMIT %(rows)s::bigint
    ) AS i
    WHERE e.process_no = ANY (ARRAY[i.process_no]) AND e.event_id = i.event_id
    RETURNING e.event_id
),

task AS (
    DELETE FROM progressor.tasks AS t
    USING (
        SELECT its.process_no, its.task_id
        FROM forgotten
        CROSS JOIN LATERAL (
            SELECT t.process_no, t.task_id
            FROM progressor.tasks AS t
            WHERE t.process_no = forgotten.process_no
            ORDER BY t.task_id
            LIMIT %(rows)s::bigint
        ) AS its
        LIMIT %(rows)s::bigint
    ) AS i
    WHERE t.process_no = ANY (ARRAY[i.process_no]) AND t.task_id = i.task_id
    RETURNING t.task_id
)

SELECT greatest((SELECT count(*) FROM event), (SELECT count(*) FROM task)) AS rows
