-- Lock the rows of the named processes, in key order: the first statement of every transaction that
-- changes anything of a process. It reads nothing else: its snapshot is older than its locks.
SELECT count(*)
FROM (
    SELECT p.process_id
    FROM (
        SELECT DISTINCT i.namespace, i.process_id
        FROM unnest(%(namespace)s::text[], %(process_id)s::text[]) AS i (namespace, process_id)
    ) AS i
    JOIN processes AS p ON p.namespace = ANY (ARRAY[i.namespace])
    AND p.process_id = ANY (ARRAY[i.process_id])
    -- By the item, not by the row: the planner shall not think of reading the index in its order.
    ORDER BY i.namespace COLLATE "C", i.process_id COLLATE "C"
    FOR NO KEY UPDATE OF p
) AS locked
