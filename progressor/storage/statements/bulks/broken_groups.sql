-- A preview of a bulk, or what it has left: the broken processes that match, up to `most` of the next `looks`,
-- in groups by handler and message, the largest first. Numbers in messages count as equal. With `groups` 0 it
-- only counts, and reads no task unless the filter names a handler. No more is looked at once `most` match. In the
-- order of bulks, or the newest first.
WITH looked AS MATERIALIZED (
    SELECT
        p.*,
        -- [oldest
        row_number() OVER (ORDER BY p.created_at, p.process_no) AS place
        -- oldest]
        -- [newest
        row_number() OVER (ORDER BY p.created_at DESC, p.process_no DESC) AS place
        -- newest]
    FROM (
        SELECT p.process_no, p.process_id, p.status, p.status_changed_at, p.corrupted_by, p.detail, p.created_at
        FROM progressor.processes AS p
        WHERE
            p.namespace_no = (
                SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
            )
            AND p.detail IS NOT NULL
            AND (p.created_at, p.process_no)
            > (coalesce(%(cursor_at)s::timestamptz, '-infinity'::timestamptz), %(cursor_no)s::bigint)
            AND p.created_at <= coalesce(%(until)s::timestamptz, 'infinity'::timestamptz)
        -- [oldest
        ORDER BY p.created_at, p.process_no
        -- oldest]
        -- [newest
        ORDER BY p.created_at DESC, p.process_no DESC
        -- newest]
        LIMIT %(looks)s::bigint
    ) AS p
),

matching AS MATERIALIZED (
    SELECT
        l.place, l.process_id, l.status_changed_at,
        CASE WHEN t.task_type IN ('call', 'notify') THEN t.name ELSE t.task_type::text END AS handler,
        CASE
            WHEN %(groups)s::bigint > 0 THEN regexp_replace(left(l.detail, 200), '[0-9]+', '#', 'g')
        END AS detail
    FROM looked AS l
    LEFT JOIN LATERAL (
        SELECT t.task_type, t.name
        FROM progressor.tasks AS t
        WHERE
            t.process_no = l.process_no AND t.task_id = l.corrupted_by
            AND (%(groups)s::bigint > 0 OR %(handler)s::text IS NOT NULL)
        OFFSET 0
    ) AS t ON TRUE
    WHERE
        l.status = 'error'
        AND l.status_changed_at <= coalesce(%(until)s::timestamptz, 'infinity'::timestamptz)
        AND (l.corrupted_by IS NULL OR l.corrupted_by <= coalesce(%(until_task)s::bigint, l.corrupted_by))
        AND (%(detail_like)s::text IS NULL OR l.detail LIKE %(detail_like)s::text)
        AND (
            -- include by_handler
        )
    LIMIT %(most)s::bigint
)

SELECT
    CASE
        WHEN (SELECT count(*) FROM matching) < %(most)s::bigint THEN (SELECT count(*) FROM looked)
        ELSE (SELECT max(m.place) FROM matching AS m)
    END AS looked_at,
    (SELECT count(*) FROM matching) AS matching,
    g.handler, g.detail, g.processes, g.first_broken, g.last_broken, g.examples
FROM (VALUES (1)) AS one (row)
LEFT JOIN (
    SELECT
        m.handler, m.detail, count(*) AS processes,
        min(m.status_changed_at) AS first_broken, max(m.status_changed_at) AS last_broken,
        (array_agg(m.process_id))[1:3] AS examples
    FROM matching AS m
    GROUP BY m.handler, m.detail
    ORDER BY count(*) DESC, m.detail, m.handler
    LIMIT %(groups)s::bigint
) AS g ON TRUE
ORDER BY g.processes DESC, g.detail, g.handler
