-- The messages that wait, counted up to a bound: since when, and when the first of a sender to a target is
-- due. Those behind it wait for it, whatever their own time is.
SELECT
    count(*) AS messages,
    coalesce(%(now)s::timestamptz, statement_timestamp()) - min(o.created_at) AS age,
    min(o.due) FILTER (WHERE o.is_first) - coalesce(%(now)s::timestamptz, statement_timestamp()) AS due_in
FROM (
    SELECT
        o.created_at, o.due,
        -- include first_message
        AS is_first
    FROM progressor.outbox AS o
    ORDER BY o.due
    LIMIT %(most)s::bigint
) AS o
