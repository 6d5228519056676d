-- reencode: the args of the next messages in the outbox, by sender, as stale_states. They are in the place of
-- their target; encoded as its namespace has them if that is known here, else as that of the sender.
WITH ring AS MATERIALIZED (
    -- include rings
),

stored AS MATERIALIZED (
    SELECT
        o.process_no, o.task_id AS id, o.n, r.name AS ring, o.namespace, o.process_id,
        'args' AS kind, o.args AS value, r.prefix
    FROM (
        SELECT o.process_no, o.task_id, o.n, o.namespace, o.process_id, o.args
        FROM progressor.outbox AS o
        WHERE
            (o.process_no, o.task_id, o.n)
            > (%(process_no)s::bigint, %(id)s::bigint, %(n)s::bigint)
        ORDER BY o.process_no, o.task_id, o.n
        LIMIT %(reads)s::bigint
    ) AS o
    LEFT JOIN LATERAL (
        SELECT p.namespace_no
        FROM progressor.processes AS p
        WHERE p.process_no = o.process_no
        OFFSET 0
    ) AS sender ON TRUE
    LEFT JOIN LATERAL (
        SELECT r.name, r.prefix
        FROM ring AS r
        WHERE r.name = o.namespace OR r.namespace_no = sender.namespace_no
        ORDER BY r.name = o.namespace DESC
        LIMIT 1
    ) AS r ON TRUE
),

-- include weighed
