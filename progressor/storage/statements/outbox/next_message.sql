-- The first message that is due and that nobody holds, without its values: they are what cannot be read.
SELECT
    o.process_no, o.task_id, o.n, o.namespace, o.process_id, o.name, o.attempts,
    o.idempotency_key,
    NULL AS sender_namespace, NULL AS sender_id
FROM progressor.outbox AS o
WHERE
    o.due <= coalesce(%(now)s::timestamptz, statement_timestamp())
    AND
    -- include first_message
ORDER BY o.due
LIMIT 1
FOR UPDATE OF o SKIP LOCKED
