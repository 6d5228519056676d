-- The time until the next round of a walk is due; no row if no namespace deletes anything. Walks into an archive
-- count for those alone that have one.
SELECT r.next_at - coalesce(%(now)s::timestamptz, now()) AS due_in
FROM progressor.retention AS r
-- A row that a retired namespace left is due for ever.
INNER JOIN progressor.namespaces AS n ON n.namespace_no = r.namespace_no
CROSS JOIN LATERAL (
    -- include kept_for
) AS k
WHERE %(archives)s::boolean OR NOT k.archive
ORDER BY r.next_at
LIMIT 1
