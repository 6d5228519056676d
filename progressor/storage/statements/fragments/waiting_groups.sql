-- The groups of a namespace behind `after` in which tasks wait for room, by the first of each alone: as many as
-- are asked for.
found AS (
    (
        SELECT s.group_no
        FROM progressor.schedule AS s
        WHERE
            s.namespace_no = (
                SELECT n.namespace_no FROM progressor.namespaces AS n
                WHERE n.name = %(namespace)s::text AND NOT n.paused
            )
            AND s.group_no > %(after)s::bigint AND s.held_time IS NOT NULL
        ORDER BY s.group_no
        LIMIT 1
    )
    UNION ALL
    SELECT following.group_no
    FROM found AS f
    CROSS JOIN LATERAL (
        SELECT s.group_no
        FROM progressor.schedule AS s
        WHERE
            s.namespace_no = (
                SELECT n.namespace_no FROM progressor.namespaces AS n
                WHERE n.name = %(namespace)s::text AND NOT n.paused
            )
            AND s.group_no > f.group_no AND s.held_time IS NOT NULL
        ORDER BY s.group_no
        LIMIT 1
    ) AS following
)
