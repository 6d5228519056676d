-- After a claim that PostgreSQL refused because of one row, first: the tasks that it would take, without
-- touching any other table. Each is then claimed alone.
SELECT s.process_no, s.task_id
FROM progressor.schedule AS s
WHERE
    s.namespace_no = (
        SELECT n.namespace_no FROM progressor.namespaces AS n
        WHERE n.name = %(namespace)s::text AND NOT n.paused
    )
    AND s.claimable
    AND s.task_type IN ('init', 'call', 'notify', 'repair')
ORDER BY coalesce(s.order_time, s.scheduled_time), s.task_id
LIMIT %(limit)s::bigint
