-- At the start of a program that draws numbers: the sequences that are behind the ends of indexes. Where rows
-- were copied without their sequences, all are. Each is judged if this role may use it.
SELECT c.relname::text AS name, s.last, u.highest
FROM (
    -- include used_numbers
) AS u
JOIN pg_class AS c ON c.oid = u.sequence
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN u.highest IS NOT NULL AND has_sequence_privilege(u.sequence, 'USAGE')
                -- Of one that was set and not used since, only a number that it gives tells where it is.
                THEN coalesce(pg_sequence_last_value(u.sequence), nextval(u.sequence) - 1)
        END AS last
) AS s
WHERE s.last < u.highest
ORDER BY name
