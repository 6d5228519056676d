-- How the tasks that somebody waits for stand, in their order, as many as go into so many bytes, and one at
-- least. A row that is gone went with its process.
SELECT a.status, a.response, a.error
FROM (
    SELECT
        i.ord, t.status, t.response, t.error,
        sum(octet_length(t.response))
        OVER (ORDER BY i.ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM unnest(%(process_no)s::bigint[], %(task_id)s::bigint[])
        WITH ORDINALITY AS i (process_no, task_id, ord)
    LEFT JOIN LATERAL (
        SELECT t.status, t.response, t.error
        FROM progressor.tasks AS t
        WHERE t.process_no = i.process_no AND t.task_id = i.task_id
        OFFSET 0
    ) AS t ON TRUE
) AS a
WHERE coalesce(a.bytes_before, 0) < %(bytes)s::bigint
ORDER BY a.ord
