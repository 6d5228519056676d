-- The first task of a process is its init, unless its retention has deleted that. The init of a running process has
-- succeeded.
-- Reads: all processes.
-- The init of an imported process is its import. While an init waits or runs, `init_comes_first` checks it.
SELECT
    n.name AS namespace, p.process_id, t.task_id,
    CASE
        WHEN t.task_id IS NULL THEN 'it has no task, and its retention has deleted none'
        WHEN t.task_type <> 'init' THEN format('its first task is a %%s, and its retention has deleted none', t.task_type)
        ELSE format('its init ended in %%s: %%s', t.status, left(t.error, 200))
    END AS found
FROM progressor.processes AS p
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN LATERAL (
    SELECT t.task_id, t.task_type, t.status, t.error
    FROM progressor.tasks AS t
    WHERE t.process_no = p.process_no
    ORDER BY t.task_id
    LIMIT 1
) AS t ON TRUE
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND CASE
        WHEN t.task_type = 'init' THEN p.status = 'running' AND t.status IN ('error', 'cancelled')
        ELSE p.swept_until IS NULL
    END
