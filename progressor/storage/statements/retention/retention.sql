-- For how long these namespaces keep what has ended, and the last walk through their processes.
SELECT
    n.name AS namespace, k.is_set, k.tasks, k.keys, k.events_for, k.events_last, k.archive, k.said, r.began_at,
    CASE WHEN r.ended_at >= r.began_at THEN r.ended_at END AS ended_at,
    coalesce(r.tasks_deleted, 0) AS tasks_deleted, coalesce(r.events_deleted, 0) AS events_deleted,
    coalesce(r.passed_by, 0) AS passed_by, r.next_at
FROM progressor.namespaces AS n
LEFT JOIN progressor.retention AS r ON r.namespace_no = n.namespace_no
CROSS JOIN LATERAL (
    -- include kept_for
) AS k
WHERE n.name = %(namespace)s::text
