-- import, last: insert its messages that are to be delivered.
INSERT INTO progressor.outbox (
    process_no, task_id, n, created_at, due, attempts, task_type, namespace, process_id, name,
    idempotency_key, request_hash, metadata, args, trace
)
SELECT
    i.process_no, i.task_id, i.n::integer, i.created_at, i.due, i.attempts::integer,
    i.task_type::progressor.task_type, i.namespace, i.process_id, i.name, i.idempotency_key, i.request_hash,
    i.metadata, i.args, i.trace
FROM unnest(
    %(process_no)s::bigint[], %(task_id)s::bigint[], %(n)s::bigint[], %(created_at)s::timestamptz[],
    %(due)s::timestamptz[], %(attempts)s::bigint[], %(task_type)s::text[], %(to_namespace)s::text[],
    %(to_process_id)s::text[], %(name)s::text[], %(idempotency_key)s::text[], %(request_hash)s::bytea[],
    %(metadata)s::jsonb[], %(args)s::bytea[], %(trace)s::text[]
) WITH ORDINALITY AS i (
    process_no, task_id, n, created_at, due, attempts, task_type, namespace, process_id, name,
    idempotency_key, request_hash, metadata, args, trace, ord
)
-- Numbers are drawn behind the sort: they are in the order in which the messages were sent.
ORDER BY i.ord
