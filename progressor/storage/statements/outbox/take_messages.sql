-- deliver, first: take messages that are due, and hold them until the transaction ends. Of a sender and a
-- target only the first one is locked, and whoever holds it may deliver those behind it, too: two that
-- deliver at once never change the order. What another one holds is skipped. A message that is not the first
-- in this snapshot is not taken, even if the first is being delivered just now.
--
--   head    the first messages of their senders and targets, locked
--   line    these, and those behind them, as many as are taken; `so_far` is the bytes of what comes up to here
WITH head AS MATERIALIZED (
    SELECT o.process_no, o.sent_no, o.namespace, o.process_id, o.due
    FROM progressor.outbox AS o
    WHERE
        o.due <= coalesce(%(now)s::timestamptz, statement_timestamp())
        AND
        -- include first_message
    ORDER BY o.due
    LIMIT %(limit)s::bigint
    FOR UPDATE OF o SKIP LOCKED
),

line AS MATERIALIZED (
    SELECT
        m.process_no, m.task_id, m.n, m.place,
        sum(m.bytes) OVER (ORDER BY m.place) AS so_far
    FROM (
        SELECT m.*, row_number() OVER () AS place
        FROM (
            SELECT m.*
            FROM head AS h
            CROSS JOIN LATERAL (
                SELECT m.process_no, m.task_id, m.n, m.namespace, m.process_id, octet_length(m.args) AS bytes
                FROM progressor.outbox AS m
                WHERE m.process_no + 0 = h.process_no AND m.sent_no >= h.sent_no
                ORDER BY m.sent_no
                -- Of a sender with many targets not all that it sent.
                LIMIT %(limit)s::bigint
            ) AS m
            WHERE m.namespace = h.namespace AND m.process_id = h.process_id
            -- They come in the order of `head`: nothing is sorted, and the limit ends the reading.
            LIMIT %(limit)s::bigint
        ) AS m
    ) AS m
)

SELECT
    o.process_no, o.task_id, o.n, o.task_type, o.namespace, o.process_id, o.name, o.args, o.metadata,
    o.idempotency_key, o.request_hash, o.attempts, o.trace,
    sender_namespace.name AS sender_namespace, sender.process_id AS sender_id
FROM line AS l
CROSS JOIN LATERAL (
    SELECT o.*
    FROM progressor.outbox AS o
    WHERE o.process_no = l.process_no AND o.task_id = l.task_id AND o.n = l.n
    OFFSET 0
) AS o
LEFT JOIN LATERAL (
    SELECT p.process_id, p.namespace_no
    FROM progressor.processes AS p
    WHERE p.process_no = l.process_no
    OFFSET 0
) AS sender ON TRUE
LEFT JOIN LATERAL (
    SELECT n.name FROM progressor.namespaces AS n WHERE n.namespace_no = sender.namespace_no OFFSET 0
) AS sender_namespace ON TRUE
WHERE l.place = 1 OR coalesce(l.so_far, 0) <= %(bytes)s::bigint
ORDER BY l.place
LIMIT %(limit)s::bigint
