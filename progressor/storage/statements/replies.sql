-- How the tasks that somebody waits for stand. A row that is gone went with its process.
SELECT t.status, t.response, t.error
FROM unnest(%(process_no)s::bigint[], %(task_id)s::bigint[])
    WITH ORDINALITY AS i (process_no, task_id, ord)
LEFT JOIN LATERAL (
    SELECT t.status, t.response, t.error
    FROM progressor.tasks AS t
    WHERE t.process_no = i.process_no AND t.task_id = i.task_id
    OFFSET 0
) AS t ON TRUE
ORDER BY i.ord
