-- The timers of these namespaces that failed and will be tried again: of each, of the `most` that fall due next,
-- as retries are soon. One range of an index a namespace, then two keys a timer.
SELECT
    i.namespace,
    l.looked_at,
    p.process_id,
    t.error,
    t.running_time AS at,
    t.task_type,
    t.name
FROM unnest(%(namespace)s::text[]) AS i (namespace)
CROSS JOIN LATERAL (
    SELECT l.*, count(*) OVER () AS looked_at
    FROM (
        SELECT s.process_no, s.task_id
        FROM progressor.schedule AS s
        WHERE
            s.namespace_no = (SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = i.namespace)
            AND s.claimable
            AND s.task_type IN ('timeout', 'remove')
        ORDER BY s.scheduled_time, s.task_id
        LIMIT %(most)s::bigint
    ) AS l
) AS l
CROSS JOIN LATERAL (
    SELECT left(t.error, 500) AS error, t.running_time, t.task_type, t.name
    FROM progressor.tasks AS t
    WHERE t.process_no = l.process_no AND t.task_id = l.task_id AND t.attempts_count > 0
    OFFSET 0
) AS t
CROSS JOIN LATERAL (
    SELECT p.process_id FROM progressor.processes AS p WHERE p.process_no = l.process_no OFFSET 0
) AS p
WHERE t.running_time >= coalesce(%(since)s::timestamptz, now() - %(ago)s::interval, '-infinity')
