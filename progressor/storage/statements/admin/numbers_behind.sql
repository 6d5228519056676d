-- At the start of a program that draws numbers: the sequences that are behind the ends of indexes. Where rows
-- were copied without their sequences, all are.
SELECT c.relname::text AS name, s.last, u.highest
FROM (
    -- include used_numbers
) AS u
JOIN pg_class AS c ON c.oid = u.sequence
-- One that was never used has given none.
CROSS JOIN LATERAL (SELECT coalesce(pg_sequence_last_value(u.sequence), 0) AS last) AS s
WHERE s.last < u.highest
ORDER BY name
