-- No process has the number of a removed one.
-- Reads: all removed_processes.
SELECT
    gone.namespace, gone.process_id, NULL::bigint AS task_id,
    format(
        'process %%s is removed, and there: as %%s/%%s in status %%s',
        gone.process_no, n.name, p.process_id, p.status
    ) AS found
FROM progressor.removed_processes AS gone
JOIN progressor.processes AS p ON p.process_no = gone.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE
    %(namespace)s::text IS NULL OR gone.namespace = %(namespace)s::text OR n.name = %(namespace)s::text
