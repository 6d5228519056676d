-- The next processes that match, up to `room`, of the next `looks`, in one of three orders: of their creation,
-- of that of the broken ones, of the timers that are due. A row for each namespace that was looked at; `end_at`
-- and `end_no` are those of the last that was looked at, if `looks` ended there. Ranges of an index, each with
-- a limit. `walk` goes from one namespace to the next, with what is left to look at and to find. `found` is what
-- matches in one: no more is read once there is no room. `rest` says how many there are, where a namespace is
-- through and there is room left.
WITH RECURSIVE walk AS (
    SELECT
        %(after_namespace)s::bigint - 1 AS namespace_no, NULL::bigint[] AS process_nos,
        NULL::timestamptz AS end_at, NULL::bigint AS end_no, %(looks)s::bigint AS looks, %(room)s::bigint AS room
    UNION ALL
    SELECT
        n.namespace_no::bigint, found.process_nos, found.end_at, found.end_no,
        CASE WHEN found.end_no IS NULL THEN w.looks - rest.looked ELSE 0 END,
        found.room
    FROM walk AS w
    CROSS JOIN LATERAL (
        SELECT
            n.namespace_no,
            CASE
                WHEN n.namespace_no = %(after_namespace)s::bigint THEN %(after_at)s::timestamptz
                ELSE coalesce(%(begin_at)s::timestamptz, '-infinity')
            END AS behind_at,
            CASE WHEN n.namespace_no = %(after_namespace)s::bigint THEN %(after_no)s::bigint ELSE -1 END AS behind_no
        FROM progressor.namespaces AS n
        WHERE
            n.namespace_no > w.namespace_no
            AND (%(namespaces)s::text[] IS NULL OR n.name = ANY (%(namespaces)s::text[]))
        ORDER BY n.namespace_no
        LIMIT 1
    ) AS n
    CROSS JOIN LATERAL (
        SELECT
            array_agg(f.process_no ORDER BY f.place) FILTER (WHERE f.matches) AS process_nos,
            max(f.at) FILTER (WHERE f.place = w.looks) AS end_at,
            max(f.no) FILTER (WHERE f.place = w.looks) AS end_no,
            w.room - count(*) FILTER (WHERE f.matches) AS room
        FROM (
            SELECT m.*
            FROM (
                SELECT
                    l.process_no, l.at, l.no, l.place,
                    (%(status)s::text IS NULL OR l.status = %(status)s::text::progressor.process_status)
                    AND (%(metadata)s::text IS NULL OR l.metadata @> %(metadata)s::text::jsonb)
                    AND l.created_at >= coalesce(%(created_after)s::timestamptz, '-infinity')
                    AND l.created_at < coalesce(%(created_before)s::timestamptz, 'infinity')
                    AND (
                        %(has_timer)s::boolean IS NULL
                        OR %(has_timer)s::boolean = (
                            coalesce(
                                (
                                    SELECT s.task_id
                                    FROM progressor.schedule AS s
                                    WHERE
                                        (s.process_no + 0) = l.process_no
                                        AND s.task_type IN ('timeout', 'remove')
                                    LIMIT 1
                                ),
                                (
                                    SELECT r.task_id
                                    FROM progressor.running AS r
                                    WHERE
                                        r.process_no = l.process_no
                                        AND r.task_type IN ('timeout', 'remove')
                                )
                            ) IS NOT NULL
                        )
                    ) AS matches
                FROM (
                    SELECT l.*, row_number() OVER (ORDER BY l.at, l.no) AS place
                    FROM
                        -- include look
                ) AS l
                OFFSET 0
            ) AS m
            WHERE m.matches OR m.place = w.looks
            LIMIT w.room
        ) AS f
    ) AS found
    CROSS JOIN LATERAL (
        SELECT count(*) AS looked
        FROM
            -- include look
        WHERE found.end_no IS NULL AND found.room > 0
    ) AS rest
    WHERE w.looks > 0 AND w.room > 0
)

SELECT w.namespace_no, w.process_nos, w.end_at, w.end_no
FROM walk AS w
WHERE w.process_nos IS NOT NULL OR w.end_no IS NOT NULL
ORDER BY w.namespace_no
