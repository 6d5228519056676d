-- Every task has its process; what is left of a removed process is final, and marked as orphaned.
-- Reads: all tasks.
-- An id may be used again while answers of its earlier life are still kept.
SELECT
    t.namespace, t.process_id, t.task_id,
    CASE
        WHEN t.orphaned THEN format('orphaned, and %%s', t.status)
        ELSE 'no such process'
    END AS found
FROM tasks AS t
LEFT JOIN processes AS p ON p.namespace = t.namespace AND p.process_id = t.process_id
WHERE
    (%(namespace)s::text IS NULL OR t.namespace = %(namespace)s::text)
    AND CASE
        WHEN t.orphaned THEN t.status IN ('waiting', 'running')
        ELSE p.process_id IS NULL
    END
