-- Each sequence has given the highest number of any task, event, message or row of the feed, so that it gives none again.
-- Reads: all tasks, all events, all feed, outbox.
-- Who must not use a sequence does not see where it is, and finds nothing.
SELECT
    NULL::text AS namespace, NULL::text AS process_id, NULL::bigint AS task_id,
    format('%%s is at %%s, and a table has %%s', c.relname, s.last, u.highest) AS found
FROM (
    -- include numbers_in_rows
) AS u
JOIN pg_class AS c ON c.oid = u.sequence
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN has_sequence_privilege(u.sequence, 'USAGE, SELECT')
                THEN coalesce(pg_sequence_last_value(u.sequence), 0)
        END AS last
) AS s
WHERE %(namespace)s::text IS NULL AND s.last < u.highest
