-- Only a repair runs on a broken process, and only a repair, a held timer, and requests that are still to be
-- cancelled wait on it; no repair runs or waits on another process.
-- Reads: schedule, running.
SELECT
    n.name AS namespace, p.process_id, t.task_id,
    format(
        'a %%s %%s on a process in status %%s, with %%s requests that wait or run',
        t.task_type, CASE WHEN t.runs THEN 'runs' ELSE 'waits' END, p.status, t.requests
    ) AS found
FROM (
    SELECT
        l.*,
        l.task_type IN ('timeout', 'remove') AS is_timer,
        count(*) FILTER (WHERE l.task_type NOT IN ('timeout', 'remove')) OVER (PARTITION BY l.process_no)
            AS requests
    FROM (
        SELECT s.process_no, s.task_id, s.task_type, FALSE AS runs FROM progressor.schedule AS s
        UNION ALL
        SELECT r.process_no, r.task_id, r.task_type, TRUE FROM progressor.running AS r
    ) AS l
) AS t
JOIN progressor.processes AS p ON p.process_no = t.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND CASE
        WHEN p.status <> 'error' THEN t.task_type = 'repair'
        WHEN t.is_timer THEN t.runs
        -- Requests that waited when it broke are cancelled in pieces, before any repair.
        WHEN t.task_type = 'repair' THEN t.requests > 1
        ELSE t.runs
    END
