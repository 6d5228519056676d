-- The messages that wait, counted up to a bound: since when, and when the first of a sender to a target is
-- due. Those behind it wait for it, whatever their own time is. No more is looked at once there is one.
SELECT
    count(*) AS messages,
    coalesce(%(now)s::timestamptz, statement_timestamp()) - min(w.created_at) AS age,
    (
        SELECT o.due
        FROM (
            SELECT o.process_no, o.sent_no, o.namespace, o.process_id, o.due
            FROM progressor.outbox AS o
            ORDER BY o.due
            LIMIT %(most)s::bigint
        ) AS o
        WHERE
            -- include first_message
        ORDER BY o.due
        LIMIT 1
    ) - coalesce(%(now)s::timestamptz, statement_timestamp()) AS due_in
FROM (
    SELECT o.created_at
    FROM progressor.outbox AS o
    ORDER BY o.due
    LIMIT %(most)s::bigint
) AS w
