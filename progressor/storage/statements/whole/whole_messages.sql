-- whole, fourth: the messages of these processes that are not delivered yet.
SELECT
    o.process_no, o.task_id, o.n, o.created_at, o.due, o.attempts, o.task_type, o.namespace AS to_namespace,
    o.process_id AS to_process_id, o.name, o.idempotency_key, o.request_hash, o.metadata, o.args,
    o.trace
FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
CROSS JOIN LATERAL (
    SELECT o.* FROM progressor.outbox AS o WHERE o.process_no + 0 = i.process_no OFFSET 0
) AS o
ORDER BY o.process_no, o.sent_no
