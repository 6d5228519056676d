-- The init of a running process has succeeded.
-- Reads: all processes.
-- Its init is the first of its tasks; the init of an imported process is its import. While an init waits or
-- runs, `init_comes_first` checks it.
SELECT
    n.name AS namespace, p.process_id, t.task_id,
    format('its init ended in %%s: %%s', t.status, left(t.error, 200)) AS found
FROM progressor.processes AS p
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
CROSS JOIN LATERAL (
    SELECT t.task_id, t.task_type, t.status, t.error
    FROM progressor.tasks AS t
    WHERE t.process_no = p.process_no
    ORDER BY t.task_id
    LIMIT 1
) AS t
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND p.status = 'running'
    AND t.task_type = 'init'
    AND t.status IN ('error', 'cancelled')
