-- The first messages of a sender that are not delivered yet, in their order, without their values.
SELECT
    o.task_id, o.n, o.task_type, o.namespace, o.process_id, o.name, o.created_at, o.due, o.attempts
FROM progressor.outbox AS o
WHERE o.process_no + 0 = %(process_no)s::bigint
ORDER BY o.sent_no
LIMIT %(limit)s::bigint
