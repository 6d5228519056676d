-- The number and the birth of a process: an operation that may be repeated then means this life of it and
-- no other.
SELECT p.process_no, p.birth
FROM progressor.namespaces AS n
CROSS JOIN LATERAL (
    SELECT p.process_no, p.birth
    FROM progressor.processes AS p
    WHERE p.namespace_no = n.namespace_no AND p.process_id = %(process_id)s::text
    OFFSET 0
) AS p
WHERE n.name = %(namespace)s::text
