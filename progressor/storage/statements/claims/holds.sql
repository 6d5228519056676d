-- Whether any task of a namespace is held, until a time or for room in its group.
SELECT EXISTS (
    SELECT FROM progressor.schedule AS s
    WHERE
        s.namespace_no = (
            SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
        )
        AND s.held_time IS NOT NULL
) AS holds
