-- Lock the rows of the named processes, in key order: the first statement of every transaction that
-- changes anything of a process. It reads nothing else: its snapshot is older than its locks.
-- What it did not find it cannot lock, and may be there for the statements that follow: they leave alone
-- what is named in progressor.missing, by its place in the batch.
WITH item AS MATERIALIZED (
    SELECT DISTINCT i.namespace, i.process_id
    FROM unnest(%(namespace)s::text[], %(process_id)s::text[]) AS i (namespace, process_id)
),

locked AS MATERIALIZED (
    SELECT p.namespace, p.process_id
    FROM item AS i
    JOIN processes AS p ON p.namespace = ANY (ARRAY[i.namespace])
    AND p.process_id = ANY (ARRAY[i.process_id])
    -- By the item, not by the row: the planner shall not think of reading the index in its order.
    ORDER BY i.namespace COLLATE "C", i.process_id COLLATE "C"
    FOR NO KEY UPDATE OF p
)

SELECT
    (SELECT count(*) FROM locked) AS count,
    set_config('progressor.missing', CASE
        WHEN (SELECT count(*) FROM locked) = (SELECT count(*) FROM item) THEN '{}'
        ELSE (
            SELECT array_agg(i.ord)::text
            FROM unnest(%(namespace)s::text[], %(process_id)s::text[])
                WITH ORDINALITY AS i (namespace, process_id, ord)
            WHERE
                NOT EXISTS (
                    SELECT FROM locked AS l
                    WHERE l.namespace = i.namespace AND l.process_id = i.process_id
                )
        )
    END, TRUE) AS missing
