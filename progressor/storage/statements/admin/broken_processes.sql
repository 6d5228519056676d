-- The reasons why processes of a namespace are broken: of the `most` that were created last, each with the
-- task that broke it. One range of an index, then one key per process.
WITH looked AS MATERIALIZED (
    SELECT p.process_no, p.process_id, p.corrupted_by, p.status_changed_at, left(p.detail, 500) AS error
    FROM progressor.processes AS p
    WHERE
        p.namespace_no = (SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text)
        AND p.detail IS NOT NULL
    ORDER BY p.namespace_no DESC, p.created_at DESC, p.process_no DESC
    LIMIT %(most)s::bigint
)

SELECT
    all_of_them.looked_at,
    l.process_id,
    l.error,
    l.status_changed_at AS at,
    t.task_type,
    t.name
FROM (SELECT count(*) AS looked_at FROM looked) AS all_of_them
LEFT JOIN looked AS l
    ON l.status_changed_at >= coalesce(%(since)s::timestamptz, now() - %(ago)s::interval, '-infinity')
LEFT JOIN LATERAL (
    SELECT t.task_type, t.name
    FROM progressor.tasks AS t
    WHERE t.process_no = l.process_no AND t.task_id = l.corrupted_by
    OFFSET 0
) AS t ON TRUE
