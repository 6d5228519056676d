-- The life of a process that is to be watched, none if there is no such process; and whether its namespace
-- has a feed, whose hints then say when to look.
SELECT coalesce((n.options ->> 'feed')::boolean, FALSE) AS feeds, p.process_no, p.birth
FROM progressor.namespaces AS n
LEFT JOIN LATERAL (
    SELECT p.process_no, p.birth
    FROM progressor.processes AS p
    WHERE p.namespace_no = n.namespace_no AND p.process_id = %(process_id)s::text
    OFFSET 0
) AS p ON TRUE
WHERE n.name = %(namespace)s::text
