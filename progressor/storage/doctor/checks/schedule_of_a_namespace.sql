-- Every row of schedule has the number of its process's namespace, by which workers look for it.
-- Reads: schedule.
SELECT
    n.name AS namespace, p.process_id, s.task_id,
    format('it waits in namespace %%s, its process is of %%s', s.namespace_no, p.namespace_no) AS found
FROM progressor.schedule AS s
JOIN progressor.processes AS p ON p.process_no = s.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND s.namespace_no <> p.namespace_no
