-- What holds a task that has no answer yet: the step that runs on its process, which may be its own, a time until
-- which it waits, room in its group, or a rate.
SELECT
    r.task_id AS running_id,
    r.worker_id,
    CASE WHEN s.group_no IS NULL THEN s.held_time END AS held_until,
    g.group_key AS group_name,
    coalesce(g.group_limit, (n.options ->> 'group_limit')::bigint) AS group_limit,
    n.options ->> CASE WHEN g.group_key IS NULL THEN 'rate' ELSE 'group_rate' END IS NOT NULL AS has_rate
FROM progressor.namespaces AS n
LEFT JOIN progressor.running AS r ON r.process_no = %(process_no)s::bigint
LEFT JOIN progressor.schedule AS s ON s.process_no = %(process_no)s::bigint AND s.task_id = %(task_id)s::bigint
LEFT JOIN LATERAL (
    SELECT g.group_key, g.group_limit FROM progressor.groups AS g WHERE g.group_no = s.group_no OFFSET 0
) AS g ON s.held_time IS NOT NULL
WHERE n.name = %(namespace)s::text
