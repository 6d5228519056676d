-- Set each sequence that is behind the numbers in the tables to the highest of them. Others must not draw
-- numbers meanwhile: the tables are locked.
SELECT c.relname::text AS name, s.last, u.highest, setval(u.sequence, u.highest) AS now_at
FROM (
    SELECT n.sequence, max(n.highest) AS highest
    FROM (
        -- include used_numbers
        UNION ALL
        -- include numbers_in_rows
    ) AS n
    GROUP BY n.sequence
) AS u
JOIN pg_class AS c ON c.oid = u.sequence
CROSS JOIN LATERAL (SELECT coalesce(pg_sequence_last_value(u.sequence), 0) AS last) AS s
WHERE s.last < u.highest
ORDER BY name
