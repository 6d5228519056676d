-- Only a broken process has a detail; the task that broke it is its own and ended in error.
-- Reads: all processes.
-- A process that was imported as broken was broken by no task: it never had another status.
SELECT
    n.name AS namespace, p.process_id, p.corrupted_by AS task_id,
    CASE
        WHEN p.status <> 'error' THEN format('in status %%s with a detail or corrupted_by', p.status)
        WHEN p.corrupted_by IS NULL THEN 'broken by nothing'
        WHEN p.detail IS NULL THEN 'broken without a detail'
        ELSE 'broken by a task that did not end in error'
    END AS found
FROM progressor.processes AS p
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.tasks AS t
    ON t.process_no = p.process_no AND t.task_id = p.corrupted_by AND t.status = 'error'
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND CASE
        WHEN p.status <> 'error' THEN p.detail IS NOT NULL OR p.corrupted_by IS NOT NULL
        WHEN p.corrupted_by IS NULL THEN p.previous_status IS NOT NULL
        ELSE p.detail IS NULL OR t.task_id IS NULL
    END
