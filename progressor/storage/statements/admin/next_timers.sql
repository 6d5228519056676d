-- A look at all these namespaces at once: when the first timer of each is due, and whether more than timers
-- and time decide there what runs next: a pause, a rate, a request that waits, a task that is held. `backlog`
-- then tells what. And whether any message waits, and the time. Reads a row or two of each namespace, by indexes.
SELECT
    n.name,
    (
        SELECT s.scheduled_time
        FROM progressor.schedule AS s
        WHERE s.namespace_no = n.namespace_no AND s.claimable AND s.task_type IN ('timeout', 'remove')
        ORDER BY s.scheduled_time, s.task_id
        LIMIT 1
    ) AS due,
    n.paused
    OR n.options ->> 'rate' IS NOT NULL
    OR n.options ->> 'group_rate' IS NOT NULL
    OR EXISTS (
        SELECT
        FROM progressor.schedule AS s
        WHERE
            s.namespace_no = n.namespace_no AND s.claimable
            AND s.task_type IN ('init', 'call', 'notify', 'repair')
        OFFSET 0
    )
    OR EXISTS (
        SELECT FROM progressor.schedule AS s WHERE s.namespace_no = n.namespace_no AND s.held_time IS NOT NULL OFFSET 0
    ) AS has_more,
    (SELECT TRUE FROM progressor.outbox AS o ORDER BY o.due LIMIT 1) IS NOT NULL AS has_messages,
    coalesce(%(now)s::timestamptz, now()) AS now
FROM progressor.namespaces AS n
WHERE n.name = ANY (%(namespace)s::text[])
