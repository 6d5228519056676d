-- Messages that did not become tasks: each is tried again after its delay, or ended if it has none. Returns
-- those that were ended here, and by nobody else. Each has its key, too: a server that was promoted since it
-- was taken may have drawn the numbers of another one.
WITH item AS MATERIALIZED (
    SELECT i.*
    FROM unnest(
        %(sender_no)s::bigint[], %(sent_by)s::bigint[], %(n)s::bigint[], %(idempotency_key)s::text[],
        %(delay)s::bigint[]
    ) AS i (sender_no, sent_by, n, idempotency_key, delay)
),

later AS (
    UPDATE progressor.outbox AS o
    SET
        attempts = o.attempts + 1,
        due = coalesce(%(now)s::timestamptz, statement_timestamp()) + i.delay * interval '1 microsecond'
    FROM item AS i
    WHERE
        o.process_no = ANY (ARRAY[i.sender_no]) AND o.task_id = i.sent_by AND o.n = i.n
        AND o.idempotency_key = i.idempotency_key
        AND i.delay IS NOT NULL
)

DELETE FROM progressor.outbox AS o
USING item AS i
WHERE
    o.process_no = ANY (ARRAY[i.sender_no]) AND o.task_id = i.sent_by AND o.n = i.n
    AND o.idempotency_key = i.idempotency_key
    AND i.delay IS NULL
RETURNING o.process_no, o.task_id, o.n
