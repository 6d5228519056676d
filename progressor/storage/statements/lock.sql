-- Lock the rows of the named processes, in key order: the first statement of every transaction that
-- changes anything of a process. It reads nothing else: its snapshot is older than its locks.
SELECT count(*)
FROM (
    SELECT p.process_id
    FROM (
        SELECT DISTINCT i.namespace, i.process_id
        FROM unnest(%(namespace)s::text[], %(process_id)s::text[]) AS i (namespace, process_id)
    ) AS i
    JOIN processes AS p ON p.namespace = i.namespace AND p.process_id = i.process_id
    ORDER BY p.namespace, p.process_id
    FOR NO KEY UPDATE OF p
) AS locked
