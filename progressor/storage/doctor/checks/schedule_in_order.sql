-- A request that may be claimed is as urgent as the most urgent of the hundred requests that wait behind it; timers
-- have no priority.
-- Reads: schedule.
SELECT
    n.name AS namespace, p.process_id, s.task_id,
    CASE
        WHEN s.task_type IN ('timeout', 'remove') THEN format('a timer stands at %%s', s.order_time)
        ELSE format('it stands at %%s, one behind it at %%s', coalesce(s.order_time, s.scheduled_time), behind.most_urgent)
    END AS found
FROM progressor.schedule AS s
JOIN progressor.processes AS p ON p.process_no = s.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN LATERAL (
    SELECT min(coalesce(w.order_time, w.scheduled_time)) AS most_urgent
    FROM (
        SELECT w.order_time, w.scheduled_time
        FROM progressor.schedule AS w
        WHERE
            w.process_no = s.process_no AND w.task_type NOT IN ('timeout', 'remove')
            AND w.task_id > s.task_id AND s.claimable
        ORDER BY w.task_id
        LIMIT 100
    ) AS w
    -- Where none has a priority, a clock that was set back is no reason to look.
    WHERE s.order_time IS NOT NULL OR w.order_time IS NOT NULL
) AS behind ON TRUE
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND CASE
        WHEN s.task_type IN ('timeout', 'remove') THEN s.order_time IS NOT NULL
        ELSE behind.most_urgent < coalesce(s.order_time, s.scheduled_time)
    END
