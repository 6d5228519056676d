-- Lock as `lock` does, for requests, which know their processes by name. The numbers are handed on to later
-- statements in prg.locked, each at the place of its item in the batch. A process that was not found is
-- NULL there: it could not be locked, and if it is started meanwhile it is left alone.
WITH locked AS MATERIALIZED (
    SELECT i.ord, p.process_no
    FROM unnest(%(namespace)s::text[], %(process_id)s::text[])
        WITH ORDINALITY AS i (namespace, process_id, ord)
    CROSS JOIN LATERAL (
        SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = i.namespace OFFSET 0
    ) AS n
    CROSS JOIN LATERAL (
        SELECT p.process_no
        FROM progressor.processes AS p
        WHERE p.namespace_no = n.namespace_no AND p.process_id = i.process_id
        OFFSET 0
    ) AS found
    JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[found.process_no])
    -- Ordered by what was found, not by the row, or the planner would read the index in its order.
    ORDER BY found.process_no
    FOR NO KEY UPDATE OF p
)

SELECT set_config('prg.locked', (CASE
    WHEN (SELECT count(*) FROM locked) = cardinality(%(process_id)s::text[])
        THEN (SELECT array_agg(l.process_no ORDER BY l.ord) FROM locked AS l)
    ELSE ARRAY(
        SELECT (SELECT l.process_no FROM locked AS l WHERE l.ord = i.ord)
        FROM generate_subscripts(%(process_id)s::text[], 1) AS i (ord)
        ORDER BY i.ord
    )
END)::text, TRUE) AS locked
