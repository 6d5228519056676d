-- A process has at most one live timer of a name, waiting or running; a timer's row has the name of its task.
-- Reads: schedule, running, tasks of timers.
SELECT
    n.name AS namespace, p.process_id, t.task_id,
    CASE
        WHEN t.is_misnamed THEN format('its row has the name %%L, its task %%L', t.timer, t.name)
        ELSE format('%%s timers live', t.n)
    END AS found
FROM (
    SELECT
        t.process_no, t.name, max(t.timer) AS timer, max(t.task_id) AS task_id, count(*) AS n,
        bool_or(t.timer <> t.name) AS is_misnamed
    FROM (
        SELECT s.process_no, s.task_id, s.timer, coalesce(o.name, '') AS name
        FROM progressor.schedule AS s
        LEFT JOIN progressor.tasks AS o ON o.process_no = s.process_no AND o.task_id = s.task_id
        WHERE s.task_type IN ('timeout', 'remove')
        UNION ALL
        SELECT r.process_no, r.task_id, coalesce(o.name, ''), coalesce(o.name, '')
        FROM progressor.running AS r
        LEFT JOIN progressor.tasks AS o ON o.process_no = r.process_no AND o.task_id = r.task_id
        WHERE r.task_type IN ('timeout', 'remove')
    ) AS t
    GROUP BY t.process_no, t.name
    HAVING count(*) > 1 OR bool_or(t.timer <> t.name)
) AS t
JOIN progressor.processes AS p ON p.process_no = t.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE %(namespace)s::text IS NULL OR n.name = %(namespace)s::text
