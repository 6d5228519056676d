-- The next groups of a namespace behind `after`, by their keys: the limit, whether it is its own, and how many
-- tasks run and wait for room, the latter counted up to `most`.
SELECT
    n.name AS namespace,
    g.group_key AS name,
    g.group_limit IS NOT NULL AS has_own_limit,
    coalesce(g.group_limit, (n.options ->> 'group_limit')::bigint) AS group_limit,
    running.tasks AS running,
    waiting.tasks AS waiting,
    greatest(coalesce(%(now)s::timestamptz, now()) - waiting.oldest, interval '0') AS age
FROM progressor.namespaces AS n
CROSS JOIN LATERAL (
    SELECT g.group_no, g.group_key, g.group_limit
    FROM progressor.groups AS g
    WHERE g.namespace_no = n.namespace_no AND g.group_key > %(after)s::text
    ORDER BY g.group_key
    LIMIT %(limit)s::bigint
) AS g
CROSS JOIN LATERAL (
    SELECT count(*) AS tasks FROM progressor.running AS r WHERE r.group_no = g.group_no
) AS running
CROSS JOIN LATERAL (
    SELECT count(*) AS tasks, min(h.held_time) AS oldest
    FROM (
        SELECT s.held_time
        FROM progressor.schedule AS s
        WHERE
            s.namespace_no = n.namespace_no AND s.group_no = g.group_no AND s.held_time IS NOT NULL
        ORDER BY s.held_time
        LIMIT %(most)s::bigint
    ) AS h
) AS waiting
WHERE n.name = %(namespace)s::text
ORDER BY g.group_key
