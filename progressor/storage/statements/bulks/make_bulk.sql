-- make_bulk: store the filter, and the bound by the clock and by task number. The number is drawn here, so
-- every task that is made later has a greater one, even in a transaction that began before.
INSERT INTO progressor.bulks (
    created_at, until_task, namespace, detail_like, handler, simple, redo, args,
    request_hash, idempotency_key, bulk_hash, pace, paced_at, next_at, still_since
)
SELECT
    i.now, nextval('progressor.tasks_task_id_seq'), %(namespace)s::text, %(detail_like)s::text,
    %(handler)s::text, %(simple)s::boolean, %(redo)s::boolean, %(args)s::bytea, %(request_hash)s::bytea,
    %(idempotency_key)s::text, %(bulk_hash)s::bytea, %(pace)s::interval, i.now, i.now, i.now
FROM (SELECT coalesce(%(now)s::timestamptz, now()) AS now) AS i
-- A bulk that exists already must use up no number.
WHERE NOT EXISTS (SELECT FROM progressor.bulks AS b WHERE b.idempotency_key = %(idempotency_key)s::text)
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING bulk_id
