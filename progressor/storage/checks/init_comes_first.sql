-- A process is in status init exactly as long as its one init task waits or runs, and that is its first.
-- Reads: all processes, schedule, running.
SELECT
    coalesce(p.namespace, t.namespace) AS namespace,
    coalesce(p.process_id, t.process_id) AS process_id,
    t.task_id,
    CASE
        WHEN t.task_id IS NULL THEN 'in status init without an init task'
        WHEN p.process_id IS NULL THEN 'an init task on a process that is not in status init'
        ELSE 'a second init task, or one behind others'
    END AS found
FROM (
    SELECT p.namespace, p.process_id
    FROM processes AS p
    WHERE p.status = 'init' AND (%(namespace)s::text IS NULL OR p.namespace = %(namespace)s::text)
) AS p
FULL JOIN (
    SELECT l.namespace, l.process_id, l.task_id, l.place
    FROM (
        SELECT
            l.*, row_number() OVER (PARTITION BY l.namespace, l.process_id ORDER BY l.task_id) AS place
        FROM (
            SELECT s.namespace, s.process_id, s.task_id, s.task_type FROM schedule AS s
            UNION ALL
            SELECT r.namespace, r.process_id, r.task_id, r.task_type FROM running AS r
        ) AS l
        WHERE %(namespace)s::text IS NULL OR l.namespace = %(namespace)s::text
    ) AS l
    WHERE l.task_type = 'init'
) AS t ON t.namespace = p.namespace AND t.process_id = p.process_id
WHERE t.task_id IS NULL OR p.process_id IS NULL OR t.place > 1
