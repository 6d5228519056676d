-- A process is in status init exactly while its init task waits or runs; it has one, which is its first task.
-- Reads: all processes, schedule, running.
SELECT
    n.name AS namespace, p.process_id, t.task_id,
    CASE
        WHEN t.task_id IS NULL THEN 'in status init without an init task'
        WHEN p.status <> 'init' THEN 'an init task on a process that is not in status init'
        ELSE 'a second init task, or one behind others'
    END AS found
FROM progressor.processes AS p
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN (
    SELECT
        l.*, row_number() OVER (PARTITION BY l.process_no ORDER BY l.task_id) AS place
    FROM (
        SELECT s.process_no, s.task_id, s.task_type FROM progressor.schedule AS s
        UNION ALL
        SELECT r.process_no, r.task_id, r.task_type FROM progressor.running AS r
    ) AS l
) AS t ON t.process_no = p.process_no AND t.task_type = 'init'
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND ((p.status = 'init') <> (t.task_id IS NOT NULL) OR t.place > 1)
