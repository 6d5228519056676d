-- The repair that a bulk has begun, and the request that it will run again, are tasks of the process, if that is there.
-- Reads: bulk_repairs.
SELECT
    n.name AS namespace, p.process_id, r.task_id,
    format('bulk %%s looks for this %%s, which is not there', r.bulk_id, r.role) AS found
FROM (
    SELECT r.bulk_id, r.process_no, r.task_id, 'repair' AS role FROM progressor.bulk_repairs AS r
    UNION ALL
    SELECT r.bulk_id, r.process_no, r.redo_task_id, 'request' FROM progressor.bulk_repairs AS r
) AS r
JOIN progressor.processes AS p ON p.process_no = r.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.tasks AS t ON t.process_no = r.process_no AND t.task_id = r.task_id
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND r.task_id IS NOT NULL
    AND t.task_id IS NULL
