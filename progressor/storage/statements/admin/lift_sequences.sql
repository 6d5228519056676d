-- Set each sequence that is behind the numbers in the tables to the highest of them. It is never set back: one
-- that was set and not used since is where its next number says. Nobody else works on the tables, which are
-- locked.
SELECT c.relname::text AS name, s.last, u.highest, setval(u.sequence, u.highest) AS now_at
FROM (
    SELECT n.sequence, max(n.highest) AS highest
    FROM (
        -- include used_numbers
        UNION ALL
        -- include numbers_in_rows
        UNION ALL
        SELECT to_regclass('progressor.outbox_sent_no_seq'), (SELECT max(sent_no) FROM progressor.outbox)
    ) AS n
    GROUP BY n.sequence
    OFFSET 0
) AS u
JOIN pg_class AS c ON c.oid = u.sequence
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN u.highest IS NOT NULL
                THEN coalesce(pg_sequence_last_value(u.sequence), nextval(u.sequence) - 1)
        END AS last
    OFFSET 0
) AS s
WHERE s.last < u.highest
ORDER BY name
