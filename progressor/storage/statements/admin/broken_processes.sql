-- The reasons why processes of these namespaces are broken: of each the `most` that were created last, each with
-- the task that broke it. One range of an index a namespace, then one key a process.
SELECT
    i.namespace,
    l.looked_at,
    l.process_id,
    left(l.detail, 500) AS error,
    l.status_changed_at AS at,
    t.task_type,
    t.name
FROM unnest(%(namespace)s::text[]) AS i (namespace)
CROSS JOIN LATERAL (
    SELECT l.*, count(*) OVER () AS looked_at
    FROM (
        SELECT p.process_no, p.process_id, p.corrupted_by, p.status_changed_at, p.detail
        FROM progressor.processes AS p
        WHERE
            p.namespace_no = (SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = i.namespace)
            AND p.detail IS NOT NULL
        ORDER BY p.created_at DESC, p.process_no DESC
        LIMIT %(most)s::bigint
    ) AS l
) AS l
LEFT JOIN LATERAL (
    SELECT t.task_type, t.name
    FROM progressor.tasks AS t
    WHERE t.process_no = l.process_no AND t.task_id = l.corrupted_by
    OFFSET 0
) AS t ON TRUE
WHERE l.status_changed_at >= coalesce(%(since)s::timestamptz, now() - %(ago)s::interval, '-infinity')
