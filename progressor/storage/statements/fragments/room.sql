-- How many more tasks of the group `g` may run. It is exact behind the lock on its row: nothing else puts a
-- task of a group into running.
CROSS JOIN LATERAL (
    SELECT
        greatest(
            coalesce(
                g.group_limit,
                (
                    SELECT (n.options ->> 'group_limit')::bigint
                    FROM progressor.namespaces AS n
                    WHERE n.name = %(namespace)s::text
                ),
                2147483647
            ) - count(*),
            0
        ) AS tasks
    FROM progressor.running AS r
    WHERE r.group_no = g.group_no
) AS room
