-- The first message that is due, without its values: they are what perhaps cannot be read.
SELECT
    o.process_no, o.task_id, o.n, o.namespace, o.process_id, o.name, o.attempts,
    o.created_at < coalesce(%(now)s::timestamptz, statement_timestamp()) - interval '1 day' AS is_old,
    NULL AS sender_namespace, NULL AS sender_id
FROM progressor.outbox AS o
WHERE
    o.due <= coalesce(%(now)s::timestamptz, statement_timestamp())
    AND
    -- include first_message
ORDER BY o.due
LIMIT 1
