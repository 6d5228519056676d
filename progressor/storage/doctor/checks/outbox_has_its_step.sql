-- Every message in the outbox was sent by a step that succeeded, or by a process that is gone.
-- Reads: outbox.
SELECT
    o.namespace, o.process_id, o.task_id,
    CASE
        WHEN p.process_no IS NOT NULL AND t.status IS NULL THEN 'no task sent it'
        WHEN t.status <> 'finished' THEN format('the task that sent it is %%s', t.status)
    END AS found
FROM progressor.outbox AS o
LEFT JOIN progressor.processes AS p ON p.process_no = o.process_no
LEFT JOIN progressor.tasks AS t ON t.process_no = o.process_no AND t.task_id = o.task_id
WHERE
    (%(namespace)s::text IS NULL OR o.namespace = %(namespace)s::text)
    AND (p.process_no IS NOT NULL OR t.status IS NOT NULL)
    AND t.status IS DISTINCT FROM 'finished'
