-- On a broken process nothing waits or runs but one repair; on any other process no repair does.
-- Reads: schedule, running.
SELECT
    t.namespace, t.process_id, t.task_id,
    format(
        'a %%s on a process in status %%s, with %%s that wait or run', t.task_type, p.status, t.live
    ) AS found
FROM (
    SELECT l.*, count(*) OVER (PARTITION BY l.namespace, l.process_id) AS live
    FROM (
        SELECT s.namespace, s.process_id, s.task_id, s.task_type FROM schedule AS s
        UNION ALL
        SELECT r.namespace, r.process_id, r.task_id, r.task_type FROM running AS r
    ) AS l
    WHERE %(namespace)s::text IS NULL OR l.namespace = %(namespace)s::text
) AS t
JOIN processes AS p ON p.namespace = t.namespace AND p.process_id = t.process_id
WHERE (p.status = 'error') <> (t.task_type = 'repair') OR (p.status = 'error' AND t.live > 1)
