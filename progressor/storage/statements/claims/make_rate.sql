-- A claim in a namespace with a rate, first: its row, if it is the first claim. Two at once wait for each other.
INSERT INTO progressor.rates (namespace_no, next_at)
SELECT n.namespace_no, '-infinity'
FROM progressor.namespaces AS n
WHERE
    n.name = %(namespace)s::text
    AND NOT EXISTS (
        SELECT FROM progressor.rates AS r WHERE r.namespace_no = n.namespace_no OFFSET 0
    )
ON CONFLICT DO NOTHING
