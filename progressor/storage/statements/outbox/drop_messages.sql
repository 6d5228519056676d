-- deliver, last: delete the messages that have become tasks, in the transaction that made these. A message
-- whose target has no task of its key was refused, and stays.
DELETE FROM progressor.outbox AS o
USING (
    SELECT i.sender_no, i.sent_by, i.n
    FROM unnest(
        %(sender_no)s::bigint[], %(sent_by)s::bigint[], %(n)s::bigint[],
        %(namespace)s::text[], %(process_id)s::text[], %(idempotency_key)s::text[]
    ) AS i (sender_no, sent_by, n, namespace, process_id, idempotency_key)
    CROSS JOIN LATERAL (
        SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = i.namespace OFFSET 0
    ) AS n
    CROSS JOIN LATERAL (
        SELECT p.process_no
        FROM progressor.processes AS p
        WHERE p.namespace_no = n.namespace_no AND p.process_id = i.process_id
        OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT
        FROM progressor.tasks AS t
        WHERE t.process_no + 0 = p.process_no AND t.idempotency_key = i.idempotency_key
        OFFSET 0
    ) AS t
) AS i
WHERE o.process_no = ANY (ARRAY[i.sender_no]) AND o.task_id = i.sent_by AND o.n = i.n
RETURNING o.process_no, o.task_id, o.n
