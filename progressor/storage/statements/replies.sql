-- How the tasks that somebody waits for stand. A row that is gone went with its process.
SELECT t.status, t.response, t.error
FROM unnest(
    %(namespace)s::text[], %(process_id)s::text[], %(task_id)s::bigint[]
) WITH ORDINALITY AS i (namespace, process_id, task_id, ord)
LEFT JOIN tasks AS t
    ON
        t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
        AND t.task_id = i.task_id
ORDER BY i.ord
