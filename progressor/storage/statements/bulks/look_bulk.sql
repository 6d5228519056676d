-- run_bulk, behind its lock: the next broken processes that match, up to `room` of the next `looks`, and
-- where the look ended: with the last of these, or with the one behind the last that has room. It looks no
-- further. Whether they still match is known only behind their own locks.
WITH looked AS MATERIALIZED (
    SELECT
        p.process_no, p.process_id, p.created_at, p.status, p.status_changed_at, p.corrupted_by, p.detail,
        row_number() OVER (ORDER BY p.created_at, p.process_no) AS place
    FROM (
        SELECT p.*
        FROM progressor.processes AS p
        WHERE
            p.namespace_no = (
                SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
            )
            AND p.detail IS NOT NULL
            AND (p.created_at, p.process_no)
            > (coalesce(%(cursor_at)s::timestamptz, '-infinity'::timestamptz), %(cursor_no)s::bigint)
            AND p.created_at <= %(until)s::timestamptz
        ORDER BY p.created_at, p.process_no
        LIMIT %(looks)s::bigint
    ) AS p
),

matching AS MATERIALIZED (
    SELECT l.process_no, l.process_id, l.created_at, l.place
    FROM looked AS l
    LEFT JOIN LATERAL (
        SELECT t.task_type, t.name
        FROM progressor.tasks AS t
        WHERE
            t.process_no = l.process_no AND t.task_id = l.corrupted_by
            -- The task is read only if the filter names a handler.
            AND %(handler)s::text IS NOT NULL
        OFFSET 0
    ) AS t ON TRUE
    WHERE
        l.status = 'error'
        AND l.status_changed_at <= %(until)s::timestamptz
        AND (l.corrupted_by IS NULL OR l.corrupted_by <= %(until_task)s::bigint)
        AND (%(detail_like)s::text IS NULL OR l.detail LIKE %(detail_like)s::text)
        AND (
            -- include by_handler
        )
    -- They come in the order of `looked`: nothing is sorted, and the limit ends the reading.
    LIMIT %(room)s::bigint
)

SELECT m.process_no, m.process_id, m.created_at, m.place, TRUE AS matches
FROM matching AS m
UNION ALL
(
    SELECT l.process_no, l.process_id, l.created_at, l.place, FALSE
    FROM looked AS l
    WHERE
        l.place = CASE
            WHEN (SELECT count(*) FROM matching) < %(room)s::bigint THEN (SELECT count(*) FROM looked)
            ELSE (SELECT max(m.place) + 1 FROM matching AS m)
        END
    LIMIT 1
)
ORDER BY place, matches
