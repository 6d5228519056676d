-- put, repeated after a lost answer: whether this import took the id.
SELECT t.task_id
FROM progressor.namespaces AS n
CROSS JOIN LATERAL (
    SELECT p.process_no
    FROM progressor.processes AS p
    WHERE p.namespace_no = n.namespace_no AND p.process_id = %(process_id)s::text
    OFFSET 0
) AS p
CROSS JOIN LATERAL (
    SELECT t.task_id
    FROM progressor.tasks AS t
    WHERE t.process_no + 0 = p.process_no AND t.idempotency_key = %(idempotency_key)s::text
    OFFSET 0
) AS t
WHERE n.name = %(namespace)s::text
