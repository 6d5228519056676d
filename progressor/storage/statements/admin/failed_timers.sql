-- The timers of a namespace that failed and will be tried again, of the `most` that fall due next, as
-- retries are soon. One range of an index, then two keys per timer.
WITH looked AS MATERIALIZED (
    SELECT s.process_no, s.task_id
    FROM progressor.schedule AS s
    WHERE
        s.namespace_no = (SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text)
        AND s.claimable
        AND s.task_type IN ('timeout', 'remove')
    ORDER BY s.scheduled_time, s.task_id
    LIMIT %(most)s::bigint
)

SELECT
    all_of_them.looked_at,
    f.process_id,
    f.error,
    f.running_time AS at,
    f.task_type,
    f.name
FROM (SELECT count(*) AS looked_at FROM looked) AS all_of_them
LEFT JOIN (
    SELECT p.process_id, t.error, t.running_time, t.task_type, t.name
    FROM looked AS l
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
) AS f ON TRUE
