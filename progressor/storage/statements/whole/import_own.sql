-- import, repeated after a lost answer: the births of its processes that are there. Behind import_processes,
-- which has waited for an earlier try whose COMMIT was under way.
SELECT p.birth
FROM unnest(%(namespace)s::text[], %(process_id)s::text[], %(birth)s::bigint[]) AS i (
    namespace, process_id, birth
)
CROSS JOIN LATERAL (
    SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = i.namespace OFFSET 0
) AS n
CROSS JOIN LATERAL (
    SELECT p.birth
    FROM progressor.processes AS p
    WHERE p.namespace_no = n.namespace_no AND p.process_id = i.process_id AND p.birth = i.birth
    OFFSET 0
) AS p
