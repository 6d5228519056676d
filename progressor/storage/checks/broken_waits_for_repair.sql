-- On a broken process nothing waits or runs but one repair; on any other process no repair does.
-- Reads: schedule, running.
SELECT
    n.name AS namespace, p.process_id, t.task_id,
    format(
        'a %%s on a process in status %%s, with %%s that wait or run', t.task_type, p.status, t.live
    ) AS found
FROM (
    SELECT l.*, count(*) OVER (PARTITION BY l.process_no) AS live
    FROM (
        SELECT s.process_no, s.task_id, s.task_type FROM progressor.schedule AS s
        UNION ALL
        SELECT r.process_no, r.task_id, r.task_type FROM progressor.running AS r
    ) AS l
) AS t
JOIN progressor.processes AS p ON p.process_no = t.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND ((p.status = 'error') <> (t.task_type = 'repair') OR (p.status = 'error' AND t.live > 1))
