-- Every task belongs to a process, or to a removed one, where it is final or to be deleted.
-- Reads: all tasks.
-- A name may be used again while answers of an earlier life are still kept: that life had another number.
SELECT
    gone.namespace, gone.process_id, t.task_id,
    CASE
        WHEN gone.process_no IS NULL THEN format('there is no process %%s', t.process_no)
        ELSE format('the process is removed, the task is %%s', t.status)
    END AS found
FROM progressor.tasks AS t
LEFT JOIN progressor.processes AS p ON p.process_no = t.process_no
LEFT JOIN progressor.removed_processes AS gone ON gone.process_no = t.process_no
WHERE
    (%(namespace)s::text IS NULL OR gone.namespace = %(namespace)s::text)
    AND p.process_no IS NULL
    AND (gone.process_no IS NULL OR t.status = 'running' OR t.status = 'waiting' AND NOT gone.has_requests)
