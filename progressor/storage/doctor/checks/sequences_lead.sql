-- Each sequence has given the highest of the numbers that stand at the ends of indexes, so that it gives none again.
-- Reads: one end of each index.
SELECT
    NULL::text AS namespace, NULL::text AS process_id, NULL::bigint AS task_id,
    format('%%s is at %%s, and a table has %%s', c.relname, s.last, u.highest) AS found
FROM (
    -- include used_numbers
) AS u
-- include as_the_doctor_sees
WHERE %(namespace)s::text IS NULL AND s.last < u.highest
