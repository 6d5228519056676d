-- Steps that succeed send messages: append them to the outbox. This comes before the statement that ends the
-- steps, while their running rows, the fence, are still held: a lost lease sends nothing, and a step that is
-- saved a second time after a lost answer sends nothing twice.
INSERT INTO progressor.outbox (
    process_no, task_id, n, created_at, due, task_type, namespace, process_id, name,
    idempotency_key, request_hash, metadata, args, trace
)
SELECT
    i.process_no, i.task_id, i.n,
    coalesce(%(now)s::timestamptz, statement_timestamp()),
    coalesce(%(now)s::timestamptz, statement_timestamp()),
    i.message_type::progressor.task_type, i.namespace, i.process_id, i.name,
    i.idempotency_key, i.request_hash, i.metadata, i.args, i.trace
FROM unnest(
    %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[],
    %(n)s::bigint[], %(message_type)s::text[], %(namespace)s::text[], %(process_id)s::text[],
    %(name)s::text[], %(idempotency_key)s::text[], %(request_hash)s::bytea[],
    %(process_metadata)s::jsonb[], %(args)s::bytea[], %(trace)s::text[]
) AS i (
    process_no, task_id, worker_id, lease,
    n, message_type, namespace, process_id,
    name, idempotency_key, request_hash,
    metadata, args, trace
)
-- include held
-- Numbers are drawn behind the sort: those of a step are in the order of its messages.
ORDER BY i.n
